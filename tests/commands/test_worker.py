"""``ayework_worker``: its options, a run until nothing is due, and ``--check``."""

import logging
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from itertools import product

import pytest
from django.core.management.base import CommandError
from django.db import OperationalError, ProgrammingError, connection

from django_ayework import Retry, enqueue, enqueue_many
from django_ayework.documentation import entry_url
from django_ayework.flow import startup_checks
from django_ayework.management.base import log_named
from django_ayework.management.commands.ayework_worker import Command, WorkerOptions, worker_options
from django_ayework.models import Throughput, Work, WorkerProcess
from django_ayework.store import sessions
from django_ayework.store.diagnosis import TABLES
from django_ayework.store.throughput import MINUTE
from tests.app.models import Order
from tests.app.works import add, fail, notify, pay
from tests.commands.conftest import ended
from tests.marks import each_database
from tests.processes import PATIENCE, worker_process

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


@each_database
@pytest.mark.django_db(transaction=True)
def test_a_burst_runs_what_is_due_and_ends(process_env):
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
    ends = {(pay.name, 1, 0), (add.name, 1, 0), (notify.name, 1, 0), (fail.name, 0, 1)}
    assert set(spans.values_list("type", "succeeded", "dead")) == ends
    assert f"Worker {process.id}: 2 at a time, all queues" in printed
    lines = [line for line in logged.splitlines() if " INFO " in line or " ERROR " in line]
    assert any(f"INFO [night] Worker {process.id} started: 2 at a time" in line for line in lines)
    assert any(f"ERROR [night] Work {dead.id} (shop.fail) is dead" in line for line in lines)
    assert all(" [night] " in line for line in lines)


def test_log_lines_carry_a_name_whatever_is_in_it(caplog):
    logger = logging.getLogger("django_ayework")
    with log_named("100%s"), log_named("100%d"):
        logger.warning("%d works", 3)
        logger.warning("100%")
    with log_named(""):
        logger.warning("no name")
    logger.warning("after it")
    assert caplog.messages == ["[100%d] 3 works", "[100%d] 100%", "no name", "after it"]


@pytest.mark.django_db(transaction=True)
def test_a_burst_keeps_to_its_queues_and_its_number_of_attempts(call):
    mails, other = [enqueue(notify(order_id=1)) for _ in range(3)], enqueue(add(a=1, b=2))
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


NOT_HERE = "expected --reload without {}: it is for development."
UNKNOWN = r"no work is named 'shop.ad'. Did you mean 'shop.add'\?"
LEAVES_NONE = "expected --exclude-types to leave some of --types"
NUMBERS = ("--concurrency", "--processes", "--max-works", "--max-memory")
NAMELESS = list(product(("--queues", "--types", "--exclude-types"), ("", ",", " ")))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(
            (f"{name} {n}", f"expected {name} to be 1 or more, got: {n}.")
            for name in NUMBERS
            for n in (0, -3)
        ),
        ("--processes 1001", "expected --processes to be at most 1000, got: 1001."),
        # An option without names does not choose everything.
        *(
            (f"{name} '{no}'", f"expected {name} to have names.*, got: '{no}'; leave")
            for name, no in NAMELESS
        ),
        ("--types shop.notify,shop.ad", UNKNOWN),
        ("--exclude-types shop.notify,shop.ad", UNKNOWN),
        ("--types shop.add --exclude-types shop.add,shop.notify", LEAVES_NONE),
        ("--reload --burst", NOT_HERE.format("--burst")),
        ("--reload --processes 2", NOT_HERE.format("--processes")),
        ("--reload --max-works 5 --max-memory 500", NOT_HERE.format("--max-works, --max-memory")),
        ("--health-host ::1", "expected --health-port with --health-host, got the host alone"),
        ("--metrics-host ::1 --health-port 0", "expected --metrics-port with --metrics-host, got"),
        (f"--name {'x' * 62} --processes 10", "expected --name to have at most 61 characters, got: 62"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(CommandError, match=message):
        read(*shlex.split(arguments))


def test_what_is_no_number_is_refused(call):
    with pytest.raises(CommandError, match="invalid int value: 'many'"):
        call("ayework_worker", "--concurrency", "many")


def test_a_name_must_fit_with_the_number_of_its_process():
    assert read("--name", "x" * 64).name == "x" * 64
    assert read("--name", "x" * 61, "--processes", "10").name == "x" * 61


def test_options_reach_the_worker():
    worker = read(
        "--queues", "mail, fax,", "--types", "shop.add,shop.notify", "--exclude-types", "shop.notify",
        "--concurrency", "3", "--name", "night", "--burst", "--max-works", "7", "--max-memory", "300",
    ).worker(place=2)  # fmt: skip
    assert (worker.queues, worker.types) == (("mail", "fax"), ("shop.add", "shop.notify"))
    assert worker.exclude_types == ("shop.notify",)
    assert (worker.concurrency, worker.name, worker.burst) == (3, "night-2", True)
    assert (worker._retirement.max_works, worker._retirement.max_memory) == (7, 300)


def test_by_default_there_is_one_worker_for_everything(settings):
    settings.AYEWORK = {"CONCURRENCY": 5}
    chosen = read()
    worker = chosen.worker()
    assert chosen.processes == 1
    assert (worker.queues, worker.types, worker.exclude_types, worker.name) == ((), (), (), "")
    assert worker.concurrency == 5
    assert worker._fires_schedules
    assert not read("--no-scheduler").worker()._fires_schedules


def check(*arguments: str) -> tuple[int, list[str]]:
    """Run the check; return its exit status and the lines it printed."""
    status, out, _ = ended("ayework_worker", "--check", *arguments)
    return status, out.splitlines()


#: How many connections wake-ups take.
WAKEUPS = {"postgresql": 2, "mysql": 1}.get(connection.vendor, 0)


def findings(lines: list[str], weight: str) -> list[str]:
    return [line.strip().removeprefix(weight).strip() for line in lines if line.startswith(f"  {weight}")]


@each_database
def test_all_is_well(django_assert_max_num_queries):
    with django_assert_max_num_queries(13 + 3 * len(TABLES)):  # nothing is started
        status, lines = check()
    assert status == 0
    assert lines[:2] == [
        f"Connections to the database 'default': at most {14 + WAKEUPS}",
        "  1 process, each with 8 for handlers, 1 for claiming, 1 for last attempts, 1 for settling, "
        "1 for keeping leases, "
        "1 for maintenance, 1 for firing schedules"
        + ("", ", 1 for watching for new works", ", 1 for receiving wake-ups, 1 for sending many")[WAKEUPS],
    ]
    server = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}.get(connection.vendor, connection.display_name)
    assert findings(lines, "ok") == [
        f"The database 'default' answers: {server}.",
        "all migrations are applied",
        "The tables of the queue can be written.",
        "The system checks of django_ayework find nothing.",
    ]
    assert not findings(lines, "problem")


@each_database
@pytest.mark.parametrize(
    ("arguments", "keys", "most", "detail"),
    [
        ("--no-scheduler", {}, (13, 1), "  1 process, each with 8 for handlers"),
        ("--burst", {}, (13, 1), "  1 process, each with 8 for handlers"),
        ("", {"UNHANDLED_GROUP": print}, (15, 1), "1 for UNHANDLED_GROUP"),
        ("--processes 4 --concurrency 2", {}, (32, 4), "  4 processes, each with 2 for handlers"),
        ("", {"PUBSUB": "postgres", "PUBSUB_DATABASE": "default"}, (15, 0), "  1 process"),
        ("", {"PUBSUB": "polling"}, (14, 0), "  1 process"),
    ],
    ids=["no scheduler", "burst", "hook", "processes", "wake-ups that are heard elsewhere", "polling"],
)
def test_connections_are_counted(settings, arguments, keys, most, detail):
    settings.AYEWORK = keys
    lines = check(*arguments.split())[1]
    assert lines[0] == f"Connections to the database 'default': at most {most[0] + most[1] * WAKEUPS}"
    assert detail in lines[1]
    if "--processes" in arguments:
        lines = check(*arguments.split(), "--max-works", "9")[1]
        assert lines[2] == f"  at most {64 + 8 * WAKEUPS} while all of them are being replaced"


def test_unknown_queues_are_a_problem_or_a_note(monkeypatch):
    status, lines = check("--queues", "mial,default")
    assert status == 1
    assert findings(lines, "problem") == ["no type of work uses the queue 'mial'. Did you mean 'mail'?"]
    assert "the queue 'default' is known" in findings(lines, "ok")
    status, lines = check("--queues", "zzz")
    assert status == 0
    assert findings(lines, "note")[0] == "only works queued with queue='zzz' will come to that queue"
    enqueue(add(a=1, b=2), queue="zzz")
    assert "the queue 'zzz' is known" in findings(check("--queues", "zzz")[1], "ok")
    lines = check("--types", "shop.add,shop.notify", "--queues", "mail")[1]
    note = "works of the type 'shop.add' go to the queue 'default', which is not served"
    assert findings(lines, "note")[0] == note
    monkeypatch.setattr(startup_checks, "missing_migrations", lambda: ["0011_next"])
    assert all("migrations" in problem for problem in findings(check("--queues", "mial")[1], "problem"))


def unreachable() -> str:
    raise OperationalError("connection refused\n\tIs the server running?")


def refusing() -> list[str]:
    raise ProgrammingError("permission denied\nfor table django_migrations")


E001 = f"See {entry_url('checks', 'ayework.E001')}"


@pytest.mark.parametrize(
    ("name", "answer", "keys", "problem"),
    [
        ("missing_migrations", lambda: ["0011_next"], {},
         "The database 'default' is not ready: migrations are missing: 0011_next. "
         "Run: manage.py migrate --database default"),
        ("name_of_server", unreachable, {},
         "The database 'default' does not answer: connection refused Is the server running? "
         "Check that its server runs and has connections left, and DATABASES['default']."),
        ("missing_migrations", refusing, {},
         "The database 'default' has refused a statement: permission denied for table django_migrations. "
         "Give the account of the database its rights: see the guide on security, database accounts."),
        ("try_writes", refusing, {},
         "The tables of the queue cannot be written: permission denied for table django_migrations. "
         "If the server or the file is read-only, make it writable. If its disk is full, free space there. "
         "Give the account of the database its rights: see the guide on security, database accounts."),
        ("most_connections", lambda: None, {"CONCURENCY": 5},
         f"AYEWORK has the unknown key 'CONCURENCY'. (ayework.E001) Did you mean 'CONCURRENCY'? {E001}"),
    ],
    ids=["migrations", "no answer", "refusal", "no writes", "system checks"],
)  # fmt: skip
def test_problems(monkeypatch, settings, name, answer, keys, problem):
    settings.AYEWORK = keys
    monkeypatch.setattr(startup_checks, name, answer)
    status, lines = check()
    assert (status, findings(lines, "problem")) == (1, [problem])


@each_database
def test_missing_migrations_are_found_and_few_connections_noted(monkeypatch):
    monkeypatch.setattr(startup_checks, "most_connections", lambda: 10)
    status, lines = check()
    note = "the server takes 10 connections of everybody, fewer than these workers may use"
    assert (status, findings(lines, "note")[0]) == (0, note)
    assert sessions.missing_migrations() == []
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'django_ayework'")
    assert sessions.missing_migrations()[0] == "0001_initial"


def test_a_pool_with_fewer_connections_than_slots_is_worth_a_note(monkeypatch):
    for pool, size in [({"max_size": 5}, 5), (True, 4), ({"min_size": 6}, 6), ({"max_size": 8}, None)]:
        monkeypatch.setitem(connection.settings_dict["OPTIONS"], "pool", pool)
        budget = startup_checks.Budget(concurrency=8)
        found = [finding.text for finding in startup_checks.findings_on_connections(budget)]
        wanted = f"the pool of a process has {size} connections, so its worker runs {size} works at a time"
        assert [text.partition(":")[0] for text in found] == ([f"{wanted} instead of 8"] if size else [])
        monkeypatch.undo()


CONNECTED = """
import django
django.setup()
from django.core.management import call_command
from django.db import connection
from django_ayework.signals import worker_started
connection.ensure_connection()
kept = []
worker_started.connect(lambda **more: kept.append(connected.connection is not None), weak=False)
connected = connection._connections[connection._alias]
call_command("ayework_worker", "--burst")
print("kept:", kept)
"""


@each_database
@pytest.mark.django_db(transaction=True)
def test_the_thread_that_waits_for_signals_keeps_no_connection_of_a_pool(process_env):
    """Code that ran as the process started may have taken it."""
    found = subprocess.run(
        [sys.executable, "-c", CONNECTED], env=process_env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert "kept: [False]" in found.stdout, found.stdout + found.stderr
