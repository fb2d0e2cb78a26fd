"""Whole workflows, run by worker processes."""

from django.conf import settings

collect_ignore_glob = [] if settings.configured else ["test_*.py"]
