"""Works whose writes and outcome belong together."""

from __future__ import annotations

from django.conf import settings

from tests.fixtures import consistent, fresh_stage, reported, undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]

stage = fresh_stage("tests.modes.works")
