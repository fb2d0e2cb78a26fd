"""The list of workers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from django_ayework import Worker
from django_ayework.store.clock import clock
from django_ayework.testing import time_travel
from django_ayework.testing.factories import WorkerProcessFactory
from tests.admin.conftest import Page
from tests.admin.kit import address, ids_on

LIST = "workerprocess_changelist"
pytestmark = pytest.mark.django_db


def test_it_tells_the_living_from_the_silent_and_the_stopped(operator: Client) -> None:
    now = clock.now()
    states = {
        WorkerProcessFactory(host="a", seen_at=now - timedelta(seconds=5)).id: "alive",
        WorkerProcessFactory(host="b", seen_at=now - timedelta(minutes=5)).id: "silent",
        WorkerProcessFactory(host="c", seen_at=now, stopped_at=now).id: "stopped",
    }
    rows = operator.get(address(LIST)).content.decode().split("<tr>")
    for id, state in states.items():
        (row,) = [row for row in rows if id in row]
        assert f"ayework-{state}" in row


def test_a_worker_falls_silent_by_the_engines_clock(page: Page) -> None:
    WorkerProcessFactory()
    assert "ayework-alive" in page(LIST)
    time_travel(300)
    assert "ayework-silent" in page(LIST)


def test_it_shows_queues_and_load(page: Page) -> None:
    WorkerProcessFactory(host="<b>h", pid=4242, name="blue", queues="mail,media", running=3, concurrency=7)
    WorkerProcessFactory(queues="")
    listed = page(LIST)
    for shown in ("&lt;b&gt;h", ">4242<", ">blue<", ">mail,media<", ">3 / 7<", ">all<"):
        assert shown in listed


def test_a_list_of_300_takes_few_queries(operator: Client, django_assert_max_num_queries: Any) -> None:
    WorkerProcessFactory.create_batch(300)
    with django_assert_max_num_queries(5):  # session, user, count, page, now and then the database's time
        assert len(ids_on(operator.get(address(LIST)))) == 100


def test_a_worker_has_a_page_to_be_read(page: Page) -> None:
    process = WorkerProcessFactory(name="blue")
    shown = page("workerprocess_change", process.id)
    assert "blue" in shown
    assert 'name="_save"' not in shown


@pytest.mark.django_db(transaction=True)
def test_a_real_worker_is_listed(page: Page) -> None:
    with Worker(queues=["nothing"], concurrency=2, name="real"):
        for _ in range(100):
            if "real" in (listed := page(LIST)):
                break
        assert ">real<" in listed
        assert "ayework-alive" in listed
    assert "ayework-stopped" in page(LIST)
