"""Random workflows, and what must hold of them after each step."""

from django.conf import settings

collect_ignore_glob = [] if settings.configured else ["test_*.py"]
