"""Causes, and pages of works that match, are read through their indexes, however many works there are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from django_ayework.models import Work
from django_ayework.rules.states import RETRYABLE, Status
from django_ayework.store.causes import causes
from django_ayework.store.database import atomic, by_index, clock, run
from django_ayework.store.selection import Cursor, selection_of
from django_ayework.testing.factories import WorkFactory
from tests.store.plans import analyse, assert_reads_through, entries_read, plans_of

pytestmark = pytest.mark.django_db
TABLE = Work._meta.db_table


@pytest.fixture(scope="class")
def many_dead(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Two thousand dead works of twenty causes, among as many that have succeeded.

    MySQL and MariaDB commit when a table is analysed.
    """
    with django_db_blocker.unblock():
        now = clock.now()
        like = WorkFactory.build()
        common = {"type": like.type, "queue": like.queue, "input": like.input, "options": like.options}
        rows = [
            Work(
                id=f"{number:04}",
                status=("dead", "success")[number % 2],
                reason=("exhausted", "")[number % 2],
                cause=(f"{number // 2 % 20:016}", "")[number % 2],
                **dict.fromkeys(["queued_at", "run_at", "ended_at"], now - timedelta(seconds=number)),
                **common,
            )
            for number in range(4000)
        ]
        Work.objects.bulk_create(rows)
        analyse(TABLE)
        yield
        Work.objects.all().delete()


@pytest.mark.usefixtures("many_dead")
class TestAmongManyDead:
    def test_causes_are_found_by_their_index(self) -> None:
        plans = plans_of(causes)
        assert any("ayework_cause" in plan for plan in plans), plans
        found, are_more = causes()
        assert [(cause.works, cause.cause) for cause in found] == [(100, f"{n:016}") for n in range(20)]
        assert not are_more

    @pytest.mark.vendors("mysql")
    def test_keys_of_causes_are_skipped_to(self) -> None:
        from django_ayework.store.causes import KEYS_BY_GROUPS
        from django_ayework.store.database import fetch

        assert entries_read(lambda: fetch(KEYS_BY_GROUPS, (201,))) < 100

    @pytest.mark.parametrize(
        ("filter", "statuses", "index"),
        [
            ({"type": "shop.add", "reason": "exhausted", "cause": "0" * 16}, RETRYABLE, "ayework_cause"),
            ({"status": "dead"}, RETRYABLE, "ayework_dead"),
            ({"status": "dead", "queue": "gone"}, RETRYABLE, "ayework_"),
            ({"queue": "gone"}, frozenset(Status), "ayework_queued"),
        ],
    )
    def test_a_page_is_read_along_an_index(self, filter: Any, statuses: Any, index: str) -> None:
        if connection.vendor == "sqlite" and index == "ayework_queued":
            pytest.skip("SQLite reads a table this small as it likes")
        chosen = selection_of(filter, statuses, clock.now())
        after = Cursor(clock.now() - timedelta(seconds=3000), "")
        assert_reads_through(index, plans_of(lambda: chosen.page(after, 25)))


def test_pages_go_through_all_works_once_even_of_one_moment() -> None:
    now = clock.now()
    for number in range(30):
        WorkFactory(id=f"w{number:02}", status="dead", ended_at=now - timedelta(seconds=number // 10))
    chosen = selection_of({"status": "dead"}, RETRYABLE, now)
    page = chosen.page(None, 7)
    seen = page.ids
    while page.next is not None:
        page = chosen.page(page.next, 7)
        seen = [*seen, *page.ids]
    assert (len(seen), len(set(seen)), seen[0]) == (30, 30, "w20")


@pytest.mark.vendors("postgresql")
def test_a_transaction_that_is_open_keeps_its_own_settings() -> None:
    with atomic():
        run("SET LOCAL enable_seqscan = off")
        before = run("SHOW enable_sort"), run("SHOW enable_seqscan")
        with by_index():
            assert run("SHOW enable_sort") == "off"
        assert (run("SHOW enable_sort"), run("SHOW enable_seqscan")) == before == ("on", "off")
