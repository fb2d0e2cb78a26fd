"""Propagators, OpenTelemetry and Sentry."""

import pytest
from django.conf import settings as django_settings

from tests.fixtures import consistent, quick_polls, reported, undeclared  # noqa: F401

collect_ignore_glob = [] if django_settings.configured else ["test_*.py"]


@pytest.fixture
def registered():
    """Register propagators for the time of a test."""
    from django_ayework import propagation

    before = list(propagation.propagators)
    yield lambda propagator: (propagation.register(propagator), propagator)[1]
    propagation.propagators[:] = before
