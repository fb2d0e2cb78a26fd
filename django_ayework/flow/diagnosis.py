"""The checks of ``ayework_doctor``: each reads figures and judges them. No row is written or locked."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from django.db import Error

from django_ayework.conf import get_settings
from django_ayework.define.requests import GATE_TYPE
from django_ayework.define.types import registry
from django_ayework.flow.explain import live_workers
from django_ayework.flow.maintenance import ends_of_unneeded, overdue_types
from django_ayework.flow.notify import reaches_remote
from django_ayework.flow.overview import overview
from django_ayework.flow.startup_checks import (
    in_one_line,
    project_version,
    refusal_of_writes,
    state_of_database,
    without_commits,
    wrong_isolation,
)
from django_ayework.models import WorkerProcess
from django_ayework.ports.pubsub import get_pubsub
from django_ayework.ports.pubsub.base import Listening, PubSub, connections_of
from django_ayework.ports.queue import PoppedId, Queue, get_queue
from django_ayework.rules import diagnosis as judge
from django_ayework.rules import server_diagnosis as judge_server
from django_ayework.rules.diagnosis import Diagnosis, Level, Unpruned
from django_ayework.rules.formatting import error_text
from django_ayework.rules.health import Budget
from django_ayework.rules.notifications import DUE
from django_ayework.store import backlog
from django_ayework.store import diagnosis as tables
from django_ayework.store.database import (
    atomic,
    clock,
    connection,
    database_now,
    in_transaction,
    sync_only,
)
from django_ayework.store.diagnosis import mysql, postgresql, sqlite
from django_ayework.store.lanes import Lane
from django_ayework.store.sessions import engine_session, pool_size

#: Lanes whose claims are explained; other works that are looked at for their types; works that are counted.
MOST_LANES, MOST_WORKS, MOST_COUNTED = 20, 10_000, 10_000
MOST_SCHEDULES = 200
#: A table with fewer works than this may be read in any way.
LARGE = 1000
#: Seconds to wait for a message, and between two messages that are sent.
ROUND_TRIP, AGAIN = 5.0, 0.2
#: Seconds for which SQLite may check its file.
QUICK_CHECK = 10.0
#: The channel of the round trip. A name of letters and underscores.
CHANNEL = "doctor"
#: The queue of the round trip of ids. No works are in it.
QUEUE = "ayework_doctor"

Check = Callable[[], Diagnosis | Iterable[Diagnosis]]


@sync_only
def diagnose() -> Iterator[Diagnosis]:
    """Yield the findings of all checks; only one if the database does not answer or lacks migrations."""
    yield (found := state_of_database())
    if found.level is Level.PROBLEM:
        return
    clock.synchronise()
    for name, check in (*CHECKS.items(), *CHECKS_OF_SERVER[connection().vendor].items()):
        yield from carried_out(name, check)


def carried_out(name: str, check: Check) -> Iterator[Diagnosis]:
    """Yield what a check finds, or why it could not be carried out: each error costs its own check alone."""
    try:
        with atomic() if in_transaction() else nullcontext():
            found = check()
            yield from [found] if isinstance(found, Diagnosis) else list(found)
    except Error as error:
        yield judge.unreadable(name, in_one_line(error))
    except Exception as error:  # of the server that carries messages, or of a class of the project's own
        yield judge.not_carried_out(name, error_text(error))


# Works, workers and schedules


def check_works() -> list[Diagnosis]:
    """Ask the overview what is wrong."""
    seen = overview()
    is_waiting = any(queue.pending or queue.waiting or queue.lapsed for queue in seen.queues)
    return judge.of_overview(seen.problems, seen.headline, is_waiting)


def check_leases() -> Diagnosis:
    """Count running works whose lease lapsed a while ago."""
    before = clock.now() - timedelta(seconds=judge.LAPSED_FOR)
    return judge.of_leases(backlog.lapsed_by_queue(before, MOST_COUNTED), MOST_COUNTED)


def check_types() -> Diagnosis:
    """Compare the types of works that wait with those that are registered."""
    waiting = tables.waiting_types(MOST_LANES * 10, MOST_WORKS)
    unknown = sorted(name for name in waiting if name != GATE_TYPE and registry.find(name) is None)
    return judge.of_types(unknown, registry.names())


def check_schedules() -> Diagnosis:
    """Find the schedules that are due and were not fired."""
    now = clock.now()
    late = {
        row.name: (now - row.due_at).total_seconds()
        for row in backlog.schedules_due(MOST_SCHEDULES)
        if row.due_at is not None
    }
    return judge.of_schedules(late, tables.number_of_schedules())


def check_retention() -> Diagnosis:
    """Find ended works that are older than their retention, and that nothing needs."""
    now, found = clock.now(), list[Unpruned]()
    for status, type, before in overdue_types(now):
        if ends := ends_of_unneeded(status, type, before, MOST_COUNTED):
            found.append(Unpruned(type, len(ends), (before - ends[0]).total_seconds()))
    return judge.of_retention(found, MOST_COUNTED)


def live() -> list[WorkerProcess]:
    """Return the workers that are alive."""
    return live_workers(clock.now())


# The way to the database


def check_clocks() -> Diagnosis:
    """Compare the clocks of this machine, of the database, and of live workers."""
    before = datetime.now(UTC)
    there = database_now()
    here = before + (datetime.now(UTC) - before) / 2
    ahead = [
        (worker.name or worker.id, (worker.seen_at - there).total_seconds())
        for worker in live()
        if worker.seen_at > there
    ]
    return judge.of_clocks((here - there).total_seconds(), ahead)


def check_wakeups() -> Diagnosis:
    """Send a message to this very process through the project's PubSub, or wait until its watch begins."""
    pubsub = get_pubsub()
    kind = type(pubsub).__name__
    if reaches_remote():
        seconds = first_message(pubsub, CHANNEL, secrets.token_hex(8))
        return judge.of_wakeups(kind, seconds, is_round_trip=True)
    if isinstance(pubsub, Listening):
        return judge.of_wakeups(kind, first_message(pubsub, DUE), is_round_trip=False)
    return judge.not_applicable("wake_ups", f"{kind} carries nothing between processes: workers poll.")


def first_message(pubsub: PubSub, channel: str, sent: str | None = None) -> float | None:
    """Return after how many seconds a message has come, the one that is ``sent`` if one is; None if none has.

    A watch of the database sends one as it begins.
    """
    arrived, started = threading.Event(), time.monotonic()
    unsubscribe = pubsub.subscribe(channel, lambda got: arrived.set() if sent in (None, got) else None)
    try:
        while not arrived.is_set() and time.monotonic() - started < ROUND_TRIP:
            if sent is not None:  # again and again: the first may be sent before anybody listens
                pubsub.publish(channel, sent)
            arrived.wait(AGAIN)
        return time.monotonic() - started if arrived.is_set() else None
    finally:
        unsubscribe()


def check_delivery() -> list[Diagnosis]:
    """Let an id make a round trip through each Queue."""
    queues = {id(queue): queue for queue in map(get_queue, get_settings().queues)}
    if not queues:
        return [judge.not_applicable("delivery", "No ids are delivered outside the database.")]
    return [delivered(queue) for queue in queues.values()]


def delivered(queue: Queue) -> Diagnosis:
    """Judge one Queue. An id of another round trip at the same time proves as much."""
    started, popped, error = time.monotonic(), list[PoppedId](), ""
    try:
        while not popped and time.monotonic() - started < ROUND_TRIP:
            queue.push(QUEUE, [secrets.token_hex(8)])
            popped = queue.pop([QUEUE], 1, AGAIN)
        queue.ack(popped)
    except Exception as raised:
        popped, error = [], error_text(raised)
    seconds = time.monotonic() - started if popped else None
    return judge.of_delivery(type(queue).__name__, seconds, error)


def check_reuse() -> Diagnosis:
    """Look at how connections are kept between works."""
    options: Any = connection().settings_dict
    idle = {"postgresql": postgresql.idle_limit, "mysql": mysql.idle_limit}.get(connection().vendor)
    if idle is None:
        return judge.not_applicable("connection_reuse", "SQLite has no server to connect to.")
    kept = options["CONN_MAX_AGE"], options["CONN_HEALTH_CHECKS"], pool_size()
    return judge.of_reuse(*kept, get_settings().concurrency, idle())


def check_claims() -> Diagnosis:
    """Explain the claim of each lane in a session that is set up as a worker's."""
    lanes, _ = backlog.first_lanes(MOST_LANES)
    are_large = tables.has_more_works_than(LARGE)
    with engine_session():
        plans = {
            f"{lane.queue}: {lane.type}": tables.plan_of_claim(lane)
            for lane in lanes or [Lane("default", "any")]
        }
    return judge.of_plans(plans, are_large)


def check_indexes() -> Diagnosis:
    """Compare the indexes of the tables with those that the models declare."""
    missing, number = tables.missing_indexes()
    invalid = postgresql.invalid_indexes() if connection().vendor == "postgresql" else []
    return judge.of_indexes(sorted({*missing, *invalid}), number)


def needed_connections() -> int:
    """Return how many connections the live workers may need together."""
    wakeups = connections_of(get_pubsub())
    hooks = get_settings().unhandled_group is not None
    return sum(
        Budget(concurrency=worker.concurrency, unhandled_groups=hooks, wakeups=wakeups).per_process
        for worker in live()
    )


#: The checks that every database has, by name.
CHECKS: dict[str, Check] = {
    "works": check_works,
    "leases": check_leases,
    "types": check_types,
    "schedules": check_schedules,
    "retention": check_retention,
    "versions": lambda: judge.of_versions([worker.version for worker in live()], project_version()),
    "clocks": check_clocks,
    "wake_ups": check_wakeups,
    "delivery": check_delivery,
    "writes": lambda: judge.of_writes(refusal_of_writes()),
    "isolation": lambda: (
        without_commits(connection())
        or wrong_isolation(connection())
        or judge.judged("isolation", "Transactions see what others have committed.")
    ),
    "driver": lambda: judge_server.of_driver(*tables.driver()),
    "connection_reuse": check_reuse,
    "claims": check_claims,
    "indexes": check_indexes,
}


# The server


def check_integrity() -> Diagnosis:
    """Let SQLite check its file, for a bounded time."""
    started = time.monotonic()
    errors = sqlite.quick_check(QUICK_CHECK)
    return judge_server.of_integrity(errors, time.monotonic() - started)


def missing_here(names: Iterable[str], database: str) -> dict[str, Check]:
    """Return checks that a kind of database has nothing for."""
    text = f"{database} has no such figures."
    return {name: partial(judge.not_applicable, name, text) for name in names}


CHECKS_OF_SERVER: dict[str, dict[str, Check]] = {
    "postgresql": {
        "transactions": lambda: judge_server.of_transactions(postgresql.oldest_transaction()),
        "holders": lambda: judge_server.of_holders(
            postgresql.prepared_transactions(), postgresql.replication_slots()
        ),
        "dead_rows": lambda: judge_server.of_dead_rows(postgresql.table_rows(), postgresql.vacuums()),
        "index_bloat": lambda: judge_server.of_index_bloat(postgresql.index_sizes()),
        "connections": lambda: judge.of_connections(*postgresql.connections(), needed_connections()),
        "session_limits": lambda: judge_server.of_limits(*postgresql.session_limits()),
        **missing_here(("server_settings", "integrity"), "PostgreSQL"),
    },
    "mysql": {
        "transactions": lambda: judge_server.of_transactions(mysql.oldest_transaction()),
        "dead_rows": lambda: judge_server.of_history(mysql.history_length()),
        "connections": lambda: judge.of_connections(*mysql.connections(), needed_connections()),
        "session_limits": lambda: judge_server.of_limits(*mysql.session_limits()),
        "server_settings": lambda: judge_server.of_mysql_settings(**mysql.settings()),
        **missing_here(("holders", "index_bloat", "integrity"), "MariaDB or MySQL"),
    },
    "sqlite": {
        "dead_rows": lambda: judge_server.of_pages(*sqlite.pages()),
        "server_settings": lambda: judge_server.of_sqlite_settings(**sqlite.settings()),
        "integrity": check_integrity,
        **missing_here(("transactions", "holders", "index_bloat", "connections", "session_limits"), "SQLite"),
    },
}
