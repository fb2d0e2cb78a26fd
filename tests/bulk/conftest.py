"""Causes of death, and acts on all works that match."""

from django.conf import settings

from tests.desk.conftest import browser  # noqa: F401
from tests.fixtures import consistent, quick_polls, undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]
