"""Entries of the Store in the admin."""

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.db import connection

from django_ayework.admin.entries import beginning_with
from django_ayework.models import StoreEntry
from django_ayework.store.database import clock
from django_ayework.testing.factories import StoreEntryFactory
from tests.admin.kit import address, assert_shows, ids_on
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
ENTRIES = "storeentry_changelist"


def test_the_list_says_what_entries_are_and_when_they_end(page):
    hour = timedelta(hours=1)
    for key, value, end in (
        ("<b>a", "1", None),
        ("b", "<i>text", clock.now() + hour),
        ("c", "", clock.now() - hour),
    ):
        StoreEntryFactory(key=key, value=value, expires_at=end)
    shown = "&lt;b&gt;a", "&lt;i&gt;text", "never", "ayework-stopped"
    assert_shows(page(ENTRIES), "Texts under keys that all processes share", *shown)


@each_database
def test_entries_are_found_by_the_beginning_of_their_keys_along_an_index(operator):
    claims, odd = ["claim:1", "claim:2"], ["%", "é1", "\ud7ff", "\U0010ffff"]
    for key in (*claims, *odd, "clain", "wait:x"):
        StoreEntryFactory(key=key)
    expected = {"claim:": claims, "claim:1": ["claim:1"], "Claim": []} | {key[0]: [key] for key in odd}
    assert {term: ids_on(operator.get(address(ENTRIES, q=term))) for term in expected} == expected
    if connection.vendor == "sqlite":
        assert "SEARCH" in StoreEntry.objects.filter(beginning_with("claim:")).explain()


@pytest.mark.parametrize(
    ("key", "words"), [("claim:x", "ctx.claim"), ("wait:x", "a caller waits"), ("rate", "keeps in the Store")]
)
def test_the_page_of_an_entry_has_its_value_and_what_it_is(page, key, words):
    StoreEntryFactory(key=key, value='{"<b>": [1, 2]}')
    text = page("storeentry_change", key)
    assert_shows(text, words, "&quot;&lt;b&gt;&quot;: [")
    assert 'name="_save"' not in text


@each_database
def test_deleting_takes_the_permission_and_keeps_the_old_value(operator, client_with):
    for key in ("claim:x", "a", "b", "c"):
        StoreEntryFactory(key=key, value="taken by 7")
    viewer = client_with("view_storeentry")
    change, delete = address("storeentry_change", "claim:x"), address("storeentry_delete", quote("claim:x"))
    assert delete not in viewer.get(change).content.decode()
    assert viewer.post(delete, {"post": "yes"}).status_code == 403
    assert delete in operator.get(change).content.decode()
    operator.post(delete, {"post": "yes"})
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message) == ("claim:x", "Deleted. Its value was: taken by 7")
    data = {"action": "delete_selected", "_selected_action": ["a", "b"], "post": "yes"}
    operator.post(address(ENTRIES), data)
    assert list(StoreEntry.objects.values_list("key", flat=True)) == ["c"]
    assert LogEntry.objects.count() == 3
