"""``ayework_worker``: its options, and a run until nothing is due."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError

from django_ayework import Retry, enqueue, enqueue_many
from django_ayework.management.base import log_named
from django_ayework.models import Work, WorkerProcess
from tests.app.models import Order
from tests.app.works import add, fail, notify, pay

ROOT = Path(__file__).parents[2]


def work_off(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a worker in a process of its own until it ends."""
    command = [sys.executable, "-m", "django", "ayework_worker", "--burst", *arguments]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_no_number_is_refused(call: Any) -> None:
    with pytest.raises(CommandError, match="invalid int value: 'many'"):
        call("ayework_worker", "--concurrency", "many")


@pytest.mark.django_db(transaction=True)
def test_a_burst_runs_what_is_due_and_ends(process_env: dict[str, str]) -> None:
    order = Order.objects.create(reference="A1")
    handles = enqueue_many([pay(order_id=order.pk), add(a=1, b=2)])
    mail = enqueue(notify(order_id=order.pk))
    dead = enqueue(fail(), retry=Retry(attempts=1))
    late = enqueue(add(a=3, b=4), delay=3600)
    ended = work_off(process_env, "--concurrency", "2", "--name", "night")
    assert ended.returncode == 0, ended.stderr
    assert handles[1].result(timeout=0) == 3
    assert mail.result(timeout=0) == f"order {order.pk}"
    order.refresh_from_db()
    assert order.paid and order.notified
    assert [Work.objects.get(id=id).status for id in (dead.id, late.id)] == ["dead", "scheduled"]
    process = WorkerProcess.objects.get()
    assert (process.name, process.concurrency, process.running) == ("night", 2, 0)
    assert process.stopped_at is not None
    assert f"Worker {process.id}: 2 at a time, all queues" in ended.stdout
    lines = [line for line in ended.stderr.splitlines() if " INFO " in line or " ERROR " in line]
    assert any(f"INFO [night] Worker {process.id} started: 2 at a time" in line for line in lines)
    assert any(f"ERROR [night] Work {dead.id} (shop.fail) is dead" in line for line in lines)
    assert all(" [night] " in line for line in lines)


def test_log_lines_carry_a_name_whatever_is_in_it(caplog: Any) -> None:
    logger = logging.getLogger("django_ayework")
    with log_named("100%s"), log_named("100%d"):
        logger.warning("%d works", 3)
        logger.warning("100%")
    with log_named(""):
        logger.warning("no name")
    logger.warning("after it")
    assert caplog.messages == ["[100%d] 3 works", "[100%d] 100%", "no name", "after it"]


@pytest.mark.django_db(transaction=True)
def test_a_queue_that_looks_misspelt_is_served_and_the_other_is_suggested(
    process_env: dict[str, str],
) -> None:
    ended = work_off(process_env, "--queues", "mial,default,exports")
    assert ended.returncode == 0, ended.stderr
    assert "No type of work uses the queue 'mial'. Did you mean 'mail'?" in ended.stdout
    assert "exports'" not in ended.stdout


@pytest.mark.django_db(transaction=True)
def test_a_burst_keeps_to_its_queues(process_env: dict[str, str]) -> None:
    order = Order.objects.create(reference="A1")
    mail, other = enqueue(notify(order_id=order.pk)), enqueue(add(a=1, b=2))
    ended = work_off(process_env, "--queues", "mail, fax")
    assert ended.returncode == 0, ended.stderr
    assert "mail, fax" in ended.stdout
    assert [Work.objects.get(id=id).status for id in (mail.id, other.id)] == ["success", "pending"]


@pytest.mark.django_db(transaction=True)
def test_a_number_of_attempts_is_enough(process_env: dict[str, str]) -> None:
    enqueue_many([add(a=n, b=0) for n in range(5)])
    ended = work_off(process_env, "--max-works", "2")
    assert ended.returncode == 0, ended.stderr
    assert Work.objects.filter(status="success").count() == 2
    assert Work.objects.filter(status="pending", attempt=0, worker=None).count() == 3
