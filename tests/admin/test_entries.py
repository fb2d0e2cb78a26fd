"""Entries of the Store in the admin."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.db import connection
from django.test import Client

from django_ayework.admin.entries import beginning_with
from django_ayework.models import StoreEntry
from django_ayework.store.database import clock
from django_ayework.testing.factories import StoreEntryFactory
from tests.admin.conftest import Page
from tests.admin.kit import address, assert_shows, ids_on

pytestmark = pytest.mark.django_db
ENTRIES = "storeentry_changelist"


def test_the_list_says_what_entries_are_and_when_they_end(page: Page) -> None:
    StoreEntryFactory(key="<b>a", value='{"x": 1}', expires_at=None)
    StoreEntryFactory(key="b", value="<i>text", expires_at=clock.now() + timedelta(hours=1))
    StoreEntryFactory(key="c", expires_at=clock.now() - timedelta(hours=1))
    text = page(ENTRIES)
    assert_shows(text, "Texts under keys that all processes share", "&lt;b&gt;a", "&lt;i&gt;text", "never")
    assert_shows(text, "ayework-stopped")


@pytest.mark.parametrize(
    ("term", "found"),
    [
        ("claim:", ["claim:1", "claim:2"]),
        ("claim:1", ["claim:1"]),
        ("Claim", []),
        ("%", ["%"]),
        ("é", ["é1"]),
        ("\ud7ff", ["\ud7ff"]),
        ("\U0010ffff", ["\U0010ffff"]),
    ],
)
def test_entries_are_found_by_the_beginning_of_their_keys(
    operator: Client, term: str, found: list[str]
) -> None:
    for key in ("claim:1", "claim:2", "clain", "%", "é1", "\ud7ff", "\U0010ffff", "wait:x"):
        StoreEntryFactory(key=key)
    assert ids_on(operator.get(address(ENTRIES, q=term))) == found


@pytest.mark.vendors("sqlite")
def test_an_index_finds_them() -> None:
    plan = StoreEntry.objects.filter(beginning_with("claim:")).explain()
    assert "SEARCH" in plan, connection.vendor


@pytest.mark.parametrize(
    ("key", "words"), [("claim:x", "ctx.claim"), ("wait:x", "a caller waits"), ("rate", "keeps in the Store")]
)
def test_the_page_of_an_entry_has_its_value_and_what_it_is(page: Page, key: str, words: str) -> None:
    StoreEntryFactory(key=key, value='{"<b>": [1, 2]}')
    text = page("storeentry_change", key)
    assert words in text
    assert "&quot;&lt;b&gt;&quot;: [" in text
    assert 'name="_save"' not in text


def test_deleting_takes_the_permission_and_keeps_the_old_value(
    operator: Client, client_with: Callable[..., Client]
) -> None:
    StoreEntryFactory(key="claim:x", value="taken by 7")
    viewer = client_with("view_storeentry")
    delete = address("storeentry_delete", quote("claim:x"))
    assert delete not in viewer.get(address("storeentry_change", "claim:x")).content.decode()
    assert viewer.post(delete, {"post": "yes"}).status_code == 403
    assert delete in operator.get(address("storeentry_change", "claim:x")).content.decode()
    operator.post(delete, {"post": "yes"})
    assert not StoreEntry.objects.exists()
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message) == ("claim:x", "Deleted. Its value was: taken by 7")


def test_ticked_entries_are_deleted_together(operator: Client) -> None:
    for key in "abc":
        StoreEntryFactory(key=key)
    data: dict[str, Any] = {"action": "delete_selected", "_selected_action": ["a", "b"], "post": "yes"}
    operator.post(address(ENTRIES), data)
    assert list(StoreEntry.objects.values_list("key", flat=True)) == ["c"]
    assert LogEntry.objects.count() == 2


def test_nobody_adds_or_changes_entries(operator: Client) -> None:
    StoreEntryFactory(key="a", value="old")
    assert operator.get(address("storeentry_add")).status_code == 403
    assert operator.post(address("storeentry_change", "a"), {"value": "new"}).status_code == 403
    assert StoreEntry.objects.get().value == "old"
