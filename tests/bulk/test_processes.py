"""Bulk actions among workers that share them, and that are killed in the middle."""

from functools import partial

import pytest

from django_ayework import enqueue
from django_ayework.flow.bulk_actions import stop
from django_ayework.models import BulkAction, DeadLetter, Work
from django_ayework.testing import running_worker
from django_ayework.testing.factories import DeadLetterFactory
from tests.app.works import add
from tests.bulk.kit import now_of, retry_all
from tests.marks import on_sqlite
from tests.processes import eventually, worker_process

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.races,
    pytest.mark.usefixtures("quick_polls"),
]
#: They carry out bulk actions, and run none of the works.
IDLE = ("--queues", "elsewhere", "--concurrency", "1")
idle_worker = partial(running_worker, queues=["elsewhere"], concurrency=1)
MANY = 100


@pytest.fixture(autouse=True)
def dead(transactional_db):
    """Dead works; to let each die takes longer than what is tested."""
    DeadLetter.objects.bulk_create(DeadLetterFactory.build_batch(MANY))


def pending() -> int:
    return Work.objects.filter(status="pending").count()


def assert_each_is_retried_once(row: BulkAction) -> None:
    """A work that is retried twice is refused the second time, or counted twice."""
    row = eventually(lambda: BulkAction.objects.filter(id=row.id, status="done").first())
    assert (row.done, row.refused, pending()) == (MANY, 0, MANY), row.report


def test_several_workers_share_one_and_do_nothing_twice():
    with idle_worker(), idle_worker():
        assert_each_is_retried_once(retry_all())


def test_a_kill_in_the_middle_repeats_nothing_and_loses_nothing(process_env):
    row = retry_all()
    with worker_process(process_env, *IDLE) as worker:
        eventually(lambda: now_of(row).done > 0)
        worker.kill()  # somewhere in a page
        worker.wait()
    killed = now_of(row)
    if killed.status != "done":
        assert (killed.status, killed.done) == ("running", pending())
        assert 0 < killed.done < MANY
    with idle_worker():
        assert_each_is_retried_once(row)


def test_a_stop_during_a_page_is_kept():
    row = retry_all()
    with idle_worker():
        eventually(lambda: now_of(row).done > 0)
        stopped = stop(row.id)
        assert stopped or now_of(row).status == "done"
        done = now_of(row).done
        other = retry_all(filter={"queue": "nobody's"})
        eventually(lambda: now_of(other).status == "done")  # there was time for another page
        assert (now_of(row).done, pending()) == (done, done)


@on_sqlite
def test_others_can_write_between_the_pages():
    DeadLetter.objects.bulk_create(DeadLetterFactory.build_batch(400))
    row, written = retry_all(), 0
    with idle_worker():
        eventually(lambda: now_of(row).done)
        while now_of(row).status == "running":
            enqueue(add(a=1, b=written))
            written += 1
    assert written > 50, "several for each page"
