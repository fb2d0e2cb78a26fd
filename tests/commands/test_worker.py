"""``ayework_worker``: its options, and a run until nothing is due."""

from __future__ import annotations

import logging
import subprocess
from argparse import ArgumentParser
from typing import Any

import pytest
from django.core.management.base import CommandError

from django_ayework import Retry, enqueue, enqueue_many
from django_ayework.management.base import log_named
from django_ayework.management.commands.ayework_worker import Command, WorkerOptions, worker_options
from django_ayework.models import Throughput, Work, WorkerProcess
from django_ayework.store.throughput import MINUTE
from tests.app.models import Order
from tests.app.works import add, fail, notify, pay
from tests.processes import PATIENCE, worker_process


@pytest.mark.django_db(transaction=True)
def test_a_burst_runs_what_is_due_and_ends(process_env: dict[str, str]) -> None:
    order = Order.objects.create(reference="A1")
    handles = enqueue_many([pay(order_id=order.pk), add(a=1, b=2)])
    mail = enqueue(notify(order_id=order.pk))
    dead = enqueue(fail(), retry=Retry(attempts=1))
    late = enqueue(add(a=3, b=4), delay=3600)
    arguments = ("--burst", "--concurrency", "2", "--name", "night")
    with worker_process(process_env, *arguments, stderr=subprocess.PIPE) as worker:
        printed, logged = worker.communicate(timeout=PATIENCE)
    assert worker.returncode == 0, logged
    assert handles[1].result(timeout=0) == 3
    assert mail.result(timeout=0) == f"order {order.pk}"
    order.refresh_from_db()
    assert order.paid and order.notified
    assert [Work.objects.get(id=id).status for id in (dead.id, late.id)] == ["dead", "scheduled"]
    process = WorkerProcess.objects.get()
    assert (process.name, process.concurrency, process.running) == ("night", 2, 0)
    assert process.stopped_at is not None
    spans = Throughput.objects.filter(seconds=MINUTE)
    assert set(spans.values_list("type", "succeeded", "dead")) == {
        (pay.name, 1, 0), (add.name, 1, 0), (notify.name, 1, 0), (fail.name, 0, 1),
    }  # fmt: skip
    assert f"Worker {process.id}: 2 at a time, all queues" in printed
    lines = [line for line in logged.splitlines() if " INFO " in line or " ERROR " in line]
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
def test_a_burst_keeps_to_its_queues_and_its_number_of_attempts(call: Any) -> None:
    order = Order.objects.create(reference="A1")
    mails, other = [enqueue(notify(order_id=order.pk)) for _ in range(3)], enqueue(add(a=1, b=2))
    printed = call("ayework_worker", "--burst", "--queues", "mail, mial,exports", "--max-works", "2")
    assert "mail, mial, exports" in printed
    assert "No type of work uses the queue 'mial'. Did you mean 'mail'?" in printed
    assert "exports'" not in printed
    assert Work.objects.filter(id__in=[mail.id for mail in mails], status="success").count() == 2
    assert Work.objects.filter(status="pending", attempt=0, worker=None).count() == 2
    assert Work.objects.get(id=other.id).status == "pending"


def read(*arguments: str) -> WorkerOptions:
    """Read a command line."""
    parser = ArgumentParser()
    Command().add_arguments(parser)  # type: ignore[arg-type]
    return worker_options(vars(parser.parse_args(arguments)))


def test_what_is_no_number_is_refused(call: Any) -> None:
    with pytest.raises(CommandError, match="invalid int value: 'many'"):
        call("ayework_worker", "--concurrency", "many")


@pytest.mark.parametrize("option", ["--concurrency", "--processes", "--max-works", "--max-memory"])
@pytest.mark.parametrize("value", ["0", "-3"])
def test_numbers_that_make_no_sense_are_refused(option: str, value: str) -> None:
    with pytest.raises(CommandError, match=f"expected {option} to be 1 or more, got: {value}."):
        read(option, value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--types shop.notify,shop.ad", r"no work is named 'shop.ad'. Did you mean 'shop.add'\?"),
        ("--exclude-types shop.notify,shop.ad", r"no work is named 'shop.ad'. Did you mean 'shop.add'\?"),
        (
            "--types shop.add --exclude-types shop.add,shop.notify",
            "expected --exclude-types to leave some of --types",
        ),
        ("--reload --burst", "expected --reload without --burst: it is for development."),
        ("--reload --processes 2", "expected --reload without --processes: it is for development."),
        (
            "--reload --max-works 5 --max-memory 500",
            "expected --reload without --max-works, --max-memory: it is for development.",
        ),
    ],
)
def test_options_that_contradict_one_another_are_refused(arguments: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        read(*arguments.split())


def test_a_name_must_fit_with_the_number_of_its_process() -> None:
    assert read("--name", "x" * 64).name == "x" * 64
    assert read("--name", "x" * 61, "--processes", "10").name == "x" * 61
    with pytest.raises(CommandError, match="expected --name to have at most 61 characters, got: 62"):
        read("--name", "x" * 62, "--processes", "10")


@pytest.mark.parametrize("names", ["", ",", " "])
@pytest.mark.parametrize("option", ["--queues", "--types", "--exclude-types"])
def test_an_option_without_names_does_not_choose_everything(option: str, names: str) -> None:
    with pytest.raises(CommandError, match=f"expected {option} to have names.*, got: {names!r}; leave"):
        read(option, names)


def test_options_reach_the_worker() -> None:
    worker = read(
        "--queues", "mail, fax,", "--types", "shop.add,shop.notify", "--exclude-types", "shop.notify",
        "--concurrency", "3", "--name", "night", "--burst", "--max-works", "7", "--max-memory", "300",
    ).worker(place=2)  # fmt: skip
    assert (worker.queues, worker.types) == (("mail", "fax"), ("shop.add", "shop.notify"))
    assert worker.exclude_types == ("shop.notify",)
    assert (worker.concurrency, worker.name, worker.burst) == (3, "night-2", True)
    assert (worker._limits.max_works, worker._limits.max_memory) == (7, 300)


def test_by_default_there_is_one_worker_for_everything(settings: Any) -> None:
    settings.AYEWORK = {"CONCURRENCY": 5}
    chosen = read()
    worker = chosen.worker()
    assert chosen.processes == 1
    assert (worker.queues, worker.types, worker.exclude_types, worker.name) == ((), (), (), "")
    assert worker.concurrency == 5
    assert worker._fires_schedules
    assert not read("--no-scheduler").worker()._fires_schedules
