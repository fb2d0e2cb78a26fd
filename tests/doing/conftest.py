"""Works that doers run in a worker."""

from django.conf import settings

from tests.fixtures import consistent, fresh_stage, quick_polls, undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]
stage = fresh_stage("tests.doing.works")
