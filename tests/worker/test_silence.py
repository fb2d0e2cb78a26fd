"""A connection that is alive for TCP, and never answers: a hung pooler, a balancer that has forgotten it."""

from __future__ import annotations

import signal

import pytest

from django_ayework import enqueue, enqueue_many
from django_ayework.models import Attempt, Work
from tests.processes import ended, eventually, get, health_address, worker_process
from tests.proxies import Proxy
from tests.worker.works import quick

pytestmark = pytest.mark.vendors("postgresql", "mysql")

#: What the statement says that gets no answer, by the thread that sends it.
STATEMENTS = {
    "claiming": b"SKIP LOCKED",
    "settling": b"completed_by",
}


@pytest.mark.parametrize("thread", ["claiming", "settling"])
def test_a_connection_that_does_not_answer_is_replaced_and_no_outcome_is_lost(
    cut_off_env, proxy: Proxy, thread: str
):
    proxy.hush_one(STATEMENTS[thread])
    with worker_process(cut_off_env | {"TEST_STATEMENT_TIMEOUT": "1"}, "--concurrency", "2") as process:
        handles = enqueue_many([quick(number=number) for number in range(20)])
        eventually(lambda: proxy.hushed)
        for handle in handles:
            handle.result(timeout=40)
        process.send_signal(signal.SIGTERM)
        status, output = ended(process)
    assert status == 0, output
    assert f"The database has not answered the thread '{thread}'" in output
    assert set(Work.objects.values_list("attempt", flat=True)) == {1}
    assert not Attempt.objects.exists()


def test_health_names_the_thread_while_its_connection_does_not_answer(cut_off_env, proxy: Proxy):
    """Here the server is given up after a minute, and health is asked with a bound of half a second."""
    env = cut_off_env | {"TEST_STATEMENT_TIMEOUT": "60", "TEST_STALL": "0.5"}
    proxy.hush_one(STATEMENTS["settling"])
    with worker_process(env, "--health-port", "0") as process:
        url = health_address(process)
        enqueue(quick())
        eventually(lambda: get(f"{url}/live")[0] == 503)
        [reason] = get(f"{url}/live")[1]["reasons"]
        assert reason.startswith("the thread 'settling' has made no progress for")
        assert get(f"{url}/ready")[0] == 503


def test_a_worker_whose_thread_cannot_be_brought_back_ends_with_a_status_of_its_own(
    cut_off_env, proxy: Proxy
):
    """A service manager starts it again. Here nothing is cut, as if the driver did not return from that."""
    env = cut_off_env | {"TEST_STATEMENT_TIMEOUT": "0.5", "TEST_STALL": "0.5", "TEST_NO_CUT": "1"}
    proxy.hush_one(STATEMENTS["settling"])
    with worker_process(env) as process:
        handle = enqueue(quick())
        status, output = ended(process)
    assert status == 70, output
    assert "The thread 'settling' has not come back" in output
    assert handle.state().status == "running", "it is left to its lease"
