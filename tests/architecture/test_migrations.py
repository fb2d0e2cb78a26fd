"""The migrations make what the models say."""

import io

import pytest
from django.core.management import call_command


@pytest.mark.django_db
def test_no_migration_is_missing():
    printed = io.StringIO()
    try:
        call_command("makemigrations", check_changes=True, dry_run=True, stdout=printed)
    except SystemExit:
        pytest.fail(printed.getvalue())
    assert printed.getvalue().strip() == "No changes detected"
