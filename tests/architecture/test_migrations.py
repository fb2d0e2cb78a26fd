"""The migrations make what the models say."""

import io

import pytest
from django.core.management import call_command
from django.db import connection

from django_ayework.models import Edge


@pytest.mark.django_db
def test_no_migration_is_missing():
    printed = io.StringIO()
    try:
        call_command("makemigrations", check_changes=True, dry_run=True, stdout=printed)
    except SystemExit:
        pytest.fail(printed.getvalue())
    assert printed.getvalue().strip() == "No changes detected"


@pytest.mark.django_db
@pytest.mark.vendors("postgresql")
def test_pages_of_edges_have_room_for_what_is_written_once_more():
    """Otherwise every edge that is told moves to another page, and into all indexes anew."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = %s", [Edge._meta.db_table])
        assert cursor.fetchone()[0] == ["fillfactor=50"]
