"""What is wrong with a queue: figures in, findings with remedies out. ``flow.diagnosis`` reads the figures.

Findings on the server of a database are in ``rules.server_diagnosis``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from django_ayework.rules.figures import bounded
from django_ayework.rules.formatting import counted, duration, if_renamed, listed, sentence
from django_ayework.rules.problems import Problem, ProblemCode

#: Names that a sentence lists.
NAMED = 5
#: Seconds of clock skew that are worth a warning, and that are a problem.
SKEW, LARGE_SKEW = 2.0, 30.0
#: Seconds for which a lease may have lapsed, or a schedule may be due, before that is worth a warning.
LAPSED_FOR, BEHIND_FOR = 60.0, 60.0
#: Seconds for which ended works may outlive their retention: workers delete a batch at a time.
UNPRUNED_FOR = 3600.0
#: The index by which works are claimed.
LANE_INDEX = "ayework_lane"
#: The remedy for an account that lacks a right.
GIVE_RIGHTS = "Give the account of the database its rights: see the guide on security, database accounts."
#: Parts of all connections of the server in use that are worth a warning, and that are a problem.
BUSY, FULL = 0.75, 0.9


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What one check has found, and what to do about it; ``remedy`` is empty when there is nothing to do."""

    check: str
    level: Level
    text: str
    remedy: str = ""


def judged(check: str, text: str, remedy: str = "", *, warns: bool = False, fails: bool = False) -> Diagnosis:
    """Return a finding: a problem if it ``fails``, a warning if it ``warns``, else ok without a remedy."""
    if not (warns or fails):
        return Diagnosis(check, Level.OK, text)
    return Diagnosis(check, Level.PROBLEM if fails else Level.WARNING, text, remedy)


def worst(found: Iterable[Diagnosis]) -> Level:
    """Return the worst level of all findings."""
    levels = {each.level for each in found}
    return next((level for level in (Level.PROBLEM, Level.WARNING) if level in levels), Level.OK)


def not_applicable(check: str, text: str) -> Diagnosis:
    """Return that a check has nothing to look at here."""
    return Diagnosis(check, Level.NOT_APPLICABLE, text)


def unreadable(check: str, error: str) -> Diagnosis:
    """Return that the database refused to answer a check."""
    remedy = "Run the command as a user of the database that may read this, or look at it on the server."
    return Diagnosis(check, Level.WARNING, f"This could not be read: {error}", remedy)


def not_carried_out(check: str, error: str) -> Diagnosis:
    """Return that a check has raised an error that is none of the database's."""
    remedy = "Mend what the error names: a server that does not answer, a package, or a setting."
    return Diagnosis(check, Level.PROBLEM, f"This could not be checked: {error}", remedy)


def of_writes(refusal: str) -> Diagnosis:
    """Judge whether the tables can be written; ``refusal`` is the database's error, or ""."""
    if not refusal:
        return judged("writes", "The tables of the queue can be written.")
    text = f"The tables of the queue cannot be written: {sentence(refusal)}"
    remedy = (
        "If the server or the file is read-only, make it writable. If its disk is full, free space there. "
        f"{GIVE_RIGHTS}"
    )
    return judged("writes", text, remedy, fails=True)


# Workers and what waits for them

#: Problems of the overview by which works that wait are not run.
GRAVE = frozenset(
    {
        *(ProblemCode.NO_WORKER, ProblemCode.WORKERS_QUIET, ProblemCode.QUEUE_NOT_SERVED),
        *(ProblemCode.TYPE_NOT_TAKEN, ProblemCode.WORKER_TROUBLE),
    }
)


def of_overview(found: Sequence[Problem], headline: Problem, is_waiting: bool) -> list[Diagnosis]:
    """Return the problems of the overview as findings. ``is_waiting``: works wait for a worker."""
    if not found:
        return [Diagnosis("works", Level.OK, headline.text)]
    return [
        judged(
            "works",
            problem.text,
            problem.remedy,
            warns=True,
            fails=problem.code in GRAVE and (is_waiting or problem.code is not ProblemCode.NO_WORKER),
        )
        for problem in found
    ]


def of_leases(lapsed: Mapping[str, int], most: int) -> Diagnosis:
    """Judge the running works, by queue, whose lease lapsed a while ago; counted up to ``most``."""
    number = sum(lapsed.values())
    if not number:
        return judged("leases", f"No lease has lapsed for more than {duration(LAPSED_FOR)}.")
    text = (
        f"The leases of {some(number, number >= most, 'running work')} lapsed more than "
        f"{duration(LAPSED_FOR)} ago, and no worker has taken them back. Queues: {few(sorted(lapsed))}."
    )
    return judged("leases", text, "Start a worker that serves these queues and knows the types.", fails=True)


def of_types(unknown: Sequence[str], known: Sequence[str]) -> Diagnosis:
    """Judge the types of works that wait and that the code does not define."""
    if not unknown:
        return judged("types", "The code defines the types of all works that wait.")
    text = f"Works wait whose types this code does not define: {few(unknown)}."
    remedy = f"{if_renamed(unknown[0], known)} Run ayework_predeploy to see the works."
    return judged("types", text, remedy, fails=True)


def of_schedules(late: Mapping[str, float], number: int) -> Diagnosis:
    """Judge the schedules that are due and were not fired, by name and for how many seconds.

    ``number`` is how many schedules there are.
    """
    behind = {name: seconds for name, seconds in late.items() if seconds > BEHIND_FOR}
    if not behind:
        return judged("schedules", f"{counted(number, 'schedule')}, none of them behind.")
    text = (
        f"{counted(len(behind), 'schedule')} of {number} not fired, the longest for "
        f"{duration(max(behind.values()))}: {few([*behind])}."
    )
    remedy = "Start a worker without --no-scheduler, or ayework_scheduler, with the code that declares them."
    return judged("schedules", text, remedy, fails=True)


class Unpruned(NamedTuple):
    """Ended works of a type that outlive their retention: how many, and for how many seconds."""

    type: str
    number: int
    seconds: float


def of_retention(found: Sequence[Unpruned], most: int) -> Diagnosis:
    """Judge ended works that are older than their retention; each number is counted up to ``most``."""
    kept = [each for each in found if each.seconds > UNPRUNED_FOR]
    if not kept:
        return judged("retention", "Ended works are deleted when their retention is over.")
    number = sum(each.number for each in kept)
    longest = max(each.seconds for each in kept)
    text = (
        f"{some(number, any(each.number >= most for each in kept), 'ended work')} should have been deleted, "
        f"the first {duration(longest)} ago: {few(sorted({each.type for each in kept}))}."
    )
    remedy = "Let a worker run, which deletes them, or run ayework_prune."
    return judged("retention", text, remedy, warns=True)


def of_versions(versions: Iterable[str], own: str) -> Diagnosis:
    """Judge the versions of the project that live workers run; ``own`` is that of this process."""
    running = sorted(set(versions))
    if not any([*running, own]):
        return not_applicable("versions", "AYEWORK['VERSION'] is not set, so workers have no version.")
    names = few([version or "(none)" for version in running]) or "none, as no worker is alive"
    text = f"Workers run the version {names}; the version of this code is {own or '(none)'}."
    remedy = "Finish the deployment: replace the workers of the other versions."
    return judged("versions", text, remedy, warns=bool(set(running) - {own}))


# Clocks


def of_clocks(skew: float, ahead: Sequence[tuple[str, float]]) -> Diagnosis:
    """Judge the clocks: ``skew`` is by how many seconds this machine's clock is ahead of the database's.

    ``ahead`` has the workers whose last heartbeat is in the future, each with by how many seconds.
    """
    fast = [(worker, seconds) for worker, seconds in ahead if seconds > SKEW]
    way = "ahead of" if skew > 0 else "behind"
    text = f"The clock of this machine is {duration(abs(skew))} {way} that of the database."
    if fast:
        text += f" Heartbeats from the future: {few([worker for worker, _ in fast])}."
    remedy = (
        "Synchronise the clocks of the machines (NTP). The engine goes by the database's clock; log records "
        "and your own code go by the machine's."
    )
    worst = max([abs(skew), *(seconds for _, seconds in fast)])
    return judged("clocks", text, remedy, warns=worst > SKEW, fails=worst > LARGE_SKEW)


# Wake-ups, connections, plans


def of_wakeups(kind: str, seconds: float | None, is_round_trip: bool) -> Diagnosis:
    """Judge the wake-ups: after how many ``seconds`` something was received, None for nothing."""
    if seconds is None:
        text = f"Nothing was received through {kind}: workers poll, and start works later."
        remedy = (
            "Behind PgBouncer set AYEWORK['PUBSUB_DATABASE'] to an alias that leads past it. Otherwise see "
            "the worker's log for why its listener is cut off."
        )
        return judged("wake_ups", text, remedy, fails=True)
    what = "A message came back" if is_round_trip else "The listener was connected"
    return judged("wake_ups", f"{what} through {kind} within {duration(seconds)}.")


def of_delivery(kind: str, seconds: float | None, error: str) -> Diagnosis:
    """Judge a Queue: after how many ``seconds`` an id came back, None for none; ``error`` if it raised."""
    if seconds is not None:
        return judged("delivery", f"An id came back through {kind} within {duration(seconds)}.")
    cause = error and f": {error.rstrip('.')}"
    text = f"No id came back through {kind}{cause}. Workers poll, and start works later."
    remedy = (
        "For Redis: check that the server at AYEWORK['REDIS_URL'] answers, is no replica and no node of a "
        "cluster, has free memory, and allows the user all commands of streams on the keys ayework:queue:*."
    )
    return judged("delivery", text, remedy, fails=True)


def of_connections(used: int, most: int, holder: str, needed: int) -> Diagnosis:
    """Judge the connections of the server, or of a role or a database with a limit of its own.

    ``holder`` is what has the limit ``most``; ``needed`` is how many the live workers need together.
    """
    part = used / max(1, most)
    text = (
        f"{used} of {most} connections of {holder} are in use ({part:.0%}); the live workers need up to "
        f"{needed}."
    )
    limit = "max_connections" if holder == "the server" else f"CONNECTION LIMIT of {holder}"
    remedy = f"Raise {limit}, run fewer workers or slots, or put a pooler before the server."
    return judged("connections", text, remedy, warns=part > BUSY or needed > most, fails=part > FULL)


def of_reuse(
    max_age: float | None, health_checks: bool, pool: int | None, concurrency: int, ends: float | None
) -> Diagnosis:
    """Judge how connections of handlers are kept between works, by Django's settings and its pool.

    ``ends`` are seconds after which the server ends an idle session; None: never.
    """
    if pool is not None:
        text = f"Django's pool has {pool} connections for {concurrency} slots."
        remedy = f"Set OPTIONS['pool'] = {{'max_size': {concurrency}}}: a worker runs no more works."
        return judged("connection_reuse", text, remedy, warns=pool < concurrency)
    if max_age == 0:
        remedy = "Set CONN_MAX_AGE = 600 and CONN_HEALTH_CHECKS = True in the settings of the workers."
        text = "CONN_MAX_AGE is 0, so each work that queries opens a connection of its own."
        return judged("connection_reuse", text, remedy, warns=True)
    age = "for good" if max_age is None else f"for {duration(max_age)}"
    text = f"Connections are kept {age}, {'with' if health_checks else 'without'} health checks."
    if ends is not None and (max_age is None or max_age > ends):
        text += f" The server ends idle sessions after {duration(ends)}."
    remedy = "Set CONN_HEALTH_CHECKS = True, so that a connection that the server has ended is replaced."
    return judged("connection_reuse", text, remedy, warns=not health_checks)


def of_plans(plans: Mapping[str, str], are_large: bool) -> Diagnosis:
    """Judge the plans of claims, by queue and type. ``are_large``: the table has more than a few rows."""
    without = sorted(lane for lane, plan in plans.items() if LANE_INDEX not in plan)
    if not without:
        return judged("claims", f"Claims use the index {LANE_INDEX} ({counted(len(plans), 'lane')}).")
    text = f"Claims do not use the index {LANE_INDEX}: {few(without)}."
    remedy = "Run ANALYZE on the table of works. If the index is missing, run migrate, or create it anew."
    return judged("claims", text, remedy, warns=True, fails=are_large)


def of_indexes(missing: Sequence[str], number: int) -> Diagnosis:
    """Judge the indexes that the models declare and that the tables lack, or that cannot be used."""
    if not missing:
        return judged("indexes", f"All {number} indexes are there.")
    text = f"Indexes are missing or invalid: {few(missing)}."
    remedy = "Create them anew as the migration of django_ayework does (manage.py sqlmigrate shows how)."
    return judged("indexes", text, remedy, fails=True)


def some(number: int, is_capped: bool, noun: str) -> str:
    """Return a number of things as a text, marked if counting stopped at a bound.

    >>> some(1, False, "work"), some(9, True, "work")
    ('1 work', '9+ works')
    """
    return f"{bounded(number, is_capped)} {noun}{'' if number == 1 else 's'}"


def few(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    return listed(names[:NAMED], len(names))
