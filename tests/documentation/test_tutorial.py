"""The tutorial can be done as it is written."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pprint import pformat

import pytest

from tests.documentation.pages import page
from tests.documentation.tutorial import PAGES, tutorial


@pytest.fixture
def settings_of_database() -> Iterator[str]:
    """Make a database on the server of the suite, and return its settings; for SQLite the pages have them."""
    from django.db import connection

    if connection.vendor == "sqlite":
        yield ""
        return
    name = f"tutorial_{uuid.uuid4().hex[:12]}"
    kept = ("ENGINE", "HOST", "PORT", "USER", "PASSWORD")
    values = {key: connection.settings_dict[key] for key in kept} | {"NAME": name}
    quoted, forced = connection.ops.quote_name(name), " WITH (FORCE)" * (connection.vendor == "postgresql")
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {quoted}")
    try:
        yield f"\nDATABASES = {pformat({'default': values})}\n"
    finally:
        with connection._nodb_cursor() as cursor:
            cursor.execute(f"DROP DATABASE {quoted}{forced}")


@pytest.mark.django_db
@pytest.mark.vendors("sqlite", "postgresql")
@pytest.mark.timeout(300)
def test_the_tutorial_can_be_done_from_its_first_page_to_its_last(tmp_path, settings_of_database) -> None:
    with tutorial(tmp_path, settings=settings_of_database) as reader:
        for each in PAGES:
            reader.do(each)


def test_each_page_leads_to_the_next_and_the_index_to_all() -> None:
    links = re.findall(r"\]\((\d-\w+\.md)\)", page("tutorial/index.md").read_text())
    assert links == [each.name for each in PAGES]
    for before, after in pairwise(PAGES):
        assert f"]({after.name})" in before.read_text().splitlines()[-1]
