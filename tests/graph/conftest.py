"""Fixtures of the tests of workflows as graphs."""

import pytest
from django.conf import settings as django_settings
from hypothesis import settings

from tests.admin.conftest import client_with, operator, page, viewer  # noqa: F401
from tests.commands.conftest import call, call_json  # noqa: F401
from tests.desk.conftest import browser  # noqa: F401
from tests.fixtures import undeclared  # noqa: F401

collect_ignore_glob = [] if django_settings.configured else ["test_*.py"]

# A busy machine is no reason to fail.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def mended():
    """No label is broken."""
    from tests.gates.works import BROKEN

    BROKEN.clear()
