"""Problems of the fleet: figures in, sentences with remedies out.

``flow.overview`` reads the figures.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from django_ayework.rules.controls import command_to_resume
from django_ayework.rules.explain import UNTAKEN, called, serves
from django_ayework.rules.figures import Figures, Observed, QueueFigures, TypeFigures, WorkerFigures, bounded
from django_ayework.rules.formatting import (
    Phrase,
    duration,
    error_sentence,
    listed,
    phrase,
    phrases,
    sentence,
)

#: Works of one type that may flood, and their least part of all that wait.
FLOOD, FLOOD_SHARE = 1000, 0.5
#: Seconds that a backlog may take at the present rate.
LONG = 600.0
#: Works that die within ``Observed.lately``, and how many times as often as before, until they are a rise.
RISE, RISE_FACTOR = 5, 2.0
#: Problems of one kind that are listed.
MOST_OF_A_KIND = 5
START = "manage.py ayework_worker"
MEND_AND_RETRY = phrase("Open the dead letters by cause. Mend the cause, then retry them.")


class ProblemCode(StrEnum):
    """The kind of a problem, for programs; people read the text. The most severe come first."""

    NO_WORKER = "no_worker"  # no worker is alive
    WORKERS_QUIET = "workers_quiet"  # all live workers were told to claim nothing
    QUEUE_NOT_SERVED = "queue_not_served"  # works wait in a queue that no live worker serves
    QUEUE_PAUSED = "queue_paused"  # works wait in a paused queue
    TYPE_NOT_TAKEN = "type_not_taken"  # works wait although slots are free, or no worker knows their type
    WORKER_TROUBLE = "worker_trouble"  # a worker has threads that are stuck
    TYPE_FLOODS = "type_floods"  # one type has most of a large backlog
    BACKLOG_GROWS = "backlog_grows"  # all slots are busy, and much waits for long
    DEATHS_RISE = "deaths_rise"  # more works die than before
    AT_LIMIT = "at_limit"  # as many works of a type run as may, and others wait
    TYPE_PAUSED = "type_paused"  # works of a paused type wait
    SCHEDULE_FAILS = "schedule_fails"  # a schedule cannot be fired
    WORKER_SILENT = "worker_silent"  # a worker sends no heartbeats, and did not say that it stops
    ALL_WELL = "all_well"  # none of these; works may be dead


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in one sentence, what to do about it, and the queue, type, worker or schedule it is about."""

    code: ProblemCode
    text: str
    remedy: str = ""
    kind: str = ""  # "queue", "type", "worker" or "schedule"; empty for the whole fleet
    name: str = ""


def problems(seen: Observed) -> list[Problem]:
    """Return the problems, the most severe first, at most a few of each kind."""
    first, rules = ([], RULES) if seen.live else ([no_worker(seen)], WITHOUT_WORKERS)
    return first + [each for rule in rules for each in islice(rule(seen), MOST_OF_A_KIND)]


def headline(found: list[Problem], seen: Observed) -> Problem:
    """Return the most severe problem; without any, that there is none."""
    return found[0] if found else all_well(seen)


def all_well(seen: Observed) -> Problem:
    """Return that nothing is wrong, with figures; dead works need an operator."""
    state, running = phrase("All is well"), sum(worker.running for worker in seen.live)
    if seen.dead:
        number = bounded(seen.dead, seen.dead_capped)
        dead = phrases("%(number)s work is dead", "%(number)s works are dead", seen.dead, number=number)
        state = phrase("No problem was found, but %(dead)s", dead=dead)
    text = phrases(
        "%(state)s: %(count)d worker runs %(works)s, %(waiting)s, %(rate)s ended per minute.",
        "%(state)s: %(count)d workers run %(works)s, %(waiting)s, %(rate)s ended per minute.",
        len(seen.live),
        state=state,
        works=phrases("%(count)d work", "%(count)d works", running),
        waiting=waiting_text(seen),
        rate=f"{sum(queue.rate for queue in seen.queues):.0f}",
    )
    return Problem(ProblemCode.ALL_WELL, text, MEND_AND_RETRY if seen.dead else "")


def waiting_text(seen: Observed) -> Phrase:
    """Return how many works wait, in words."""
    return phrases("%(number)s waits", "%(number)s wait", seen.pending, number=waiting_number(seen))


def waiting_number(seen: Observed) -> str:
    """Return how many works wait in the whole fleet; there may be more than were counted."""
    return bounded(seen.pending, any("pending" in queue.capped for queue in seen.queues))


def works(figures: Figures) -> Phrase:
    """Return how many works wait there, in words."""
    number = figures.bounded("pending")
    return phrases("%(number)s work waits", "%(number)s works wait", figures.pending, number=number)


# Backlogs that stand still


def no_worker(seen: Observed) -> Problem:
    """Return that no worker is alive, and what waits for one."""
    if seen.pending:
        text = phrases(
            "No worker is running, and %(number)s work waits.",
            "No worker is running, and %(number)s works wait.",
            seen.pending,
            number=waiting_number(seen),
        )
    elif any(queue.waiting for queue in seen.queues):
        text = phrase("No worker is running, and scheduled works are due.")
    else:
        text = phrase("No worker is running, but nothing waits for one.")
    return Problem(ProblemCode.NO_WORKER, text, phrase("Start one: %(command)s", command=START))


def workers_quiet(seen: Observed) -> Iterable[Problem]:
    """Return that every live worker was told to claim nothing, if works wait."""
    live = seen.live
    if seen.pending and all(worker.quiet for worker in live):
        text = phrases(
            "The only worker is quiet: %(waiting)s, and nothing is claimed.",
            "All %(count)d workers are quiet: %(waiting)s, and nothing is claimed.",
            len(live),
            waiting=waiting_text(seen),
        )
        remedy = phrase(
            "Resume them on the page of worker processes, or start another: %(command)s", command=START
        )
        yield Problem(ProblemCode.WORKERS_QUIET, text, remedy)


def queues_not_served(seen: Observed) -> Iterable[Problem]:
    """Return the queues that have due works and no live worker."""
    for queue in seen.queues:
        if not queue.served and (queue.pending or queue.waiting or queue.lapsed):
            text = phrase(
                "%(queue)s: %(untaken)s, and no live worker serves the queue.",
                queue=queue.queue,
                untaken=untaken(queue),
            )
            command = f"{START} --queues {shlex.quote(queue.queue)}"
            remedy = phrase("Start one: %(command)s", command=command)
            yield Problem(ProblemCode.QUEUE_NOT_SERVED, text, remedy, "queue", queue.queue)


def untaken(queue: QueueFigures) -> Phrase:
    """Return what a queue without a worker has to do, in words."""
    if queue.pending:
        return works(queue)
    if queue.waiting:
        return phrase("scheduled works are due")
    return phrase("works of lost workers wait to be reclaimed")


def queues_paused(seen: Observed) -> Iterable[Problem]:
    """Return the paused queues in which works wait."""
    for queue in seen.queues:
        if queue.paused and queue.pending:
            text = phrase(
                "The queue %(queue)s is paused, and %(works)s.", queue=queue.queue, works=works(queue)
            )
            remedy = phrase(
                "Resume it in the table of queues, or run: %(command)s",
                command=command_to_resume("queue", queue.queue),
            )
            yield Problem(ProblemCode.QUEUE_PAUSED, text, remedy, "queue", queue.queue)


def types_paused(seen: Observed) -> Iterable[Problem]:
    """Return the paused types whose works wait."""
    for type in seen.types:
        if type.paused and type.pending:
            text = phrase("The type %(type)s is paused, and %(works)s.", type=type.type, works=works(type))
            remedy = phrase(
                "Resume it in the table of types, or run: %(command)s",
                command=command_to_resume("type", type.type),
            )
            yield Problem(ProblemCode.TYPE_PAUSED, text, remedy, "type", type.type)


def types_not_taken(seen: Observed) -> Iterable[Problem]:
    """Return types that no worker knows, or that none claims."""
    yield from types_not_known(seen)
    yield from types_not_claimed(seen)


def types_not_known(seen: Observed) -> Iterable[Problem]:
    """Return types that workers have claimed for a while, and that none of them knows."""
    for parked in seen.parked:
        if parked.seconds > UNTAKEN:
            number = bounded(parked.works, False)
            text = phrase(
                "%(type)s: %(works)s, the oldest for %(oldest)s, and no worker that claims them knows the "
                "type.",
                type=parked.type,
                works=phrases("%(number)s work waits", "%(number)s works wait", parked.works, number=number),
                oldest=duration(parked.seconds),
            )
            remedy = phrase(
                "Start a worker with the app that defines the type. %(advice)s", advice=parked.advice
            )
            yield Problem(ProblemCode.TYPE_NOT_TAKEN, text, remedy, "type", parked.type)


def types_not_claimed(seen: Observed) -> Iterable[Problem]:
    """Return types that no worker claims, although workers of their queues have free slots."""
    for type in flowing(seen):
        is_stuck = type.pending and not type.running and not type.rate and type.waiting > UNTAKEN
        if is_stuck and any(is_free(worker, type) for worker in seen.live):
            text = phrase(
                "%(type)s: %(works)s, the oldest for %(oldest)s, and no worker takes them although slots are "
                "free.",
                type=type.type,
                works=works(type),
                oldest=duration(type.waiting),
            )
            command = f"{START} --types {shlex.quote(type.type)}"
            remedy = phrase("Start one that knows and serves the type: %(command)s", command=command)
            yield Problem(ProblemCode.TYPE_NOT_TAKEN, text, remedy, "type", type.type)


def flowing(seen: Observed) -> list[TypeFigures]:
    """Return the types that nobody has paused, or has queues that are not."""
    halted = {queue.queue for queue in seen.queues if queue.paused or not queue.served}
    return [type for type in seen.types if not type.paused and not set(type.queues) <= halted]


def is_free(worker: WorkerFigures, type: TypeFigures) -> bool:
    """Tell whether a worker has a free slot for works of a queue that the type waits in."""
    if worker.quiet or worker.running >= worker.concurrency:
        return False
    return any(serves(worker, queue) for queue in type.queues)


# Backlogs that grow


def types_that_flood(seen: Observed) -> Iterable[Problem]:
    """Return the types that have most of a large backlog which does not shrink soon."""
    arriving = sum(type.arriving for type in seen.types)
    for type in flowing(seen):
        if floods(type, arriving):
            text = phrase(
                "Too many works of %(type)s: %(works)s, %(part)s; %(pace)s.",
                type=type.type,
                works=works(type),
                part=part_of(type, arriving),
                pace=pace(type),
            )
            remedy = phrase("Pause it, or limit how many run at a time, in its row of the table of types.")
            yield Problem(ProblemCode.TYPE_FLOODS, text, remedy, "type", type.type)


def floods(type: TypeFigures, arriving: float) -> bool:
    """Tell whether a type floods, of all works that arrive per minute. At its limit it is held back already.

    Where more works wait than were counted, its share of the backlog is not known, so its share of arriving
    works counts.
    """
    is_most = type.share >= FLOOD_SHARE
    if "pending" in type.capped and type.arriving > 0:
        is_most = is_most or type.arriving >= arriving * FLOOD_SHARE
    if type.pending < FLOOD or not is_most or is_at_limit(type):
        return False
    return type.arriving > type.rate or type.pending > type.rate * LONG / 60


def part_of(type: TypeFigures, arriving: float) -> Phrase:
    """Return the share of a type in words: of the backlog, or of arriving works."""
    is_by_backlog = type.share >= FLOOD_SHARE
    share = type.share if is_by_backlog else type.arriving / arriving
    if share > 0.995:
        return phrase("all of the backlog") if is_by_backlog else phrase("all of what arrives")
    if is_by_backlog:
        return phrase("%(share)s of the backlog", share=f"{share:.0%}")
    return phrase("%(share)s of what arrives", share=f"{share:.0%}")


def pace(figures: TypeFigures) -> Phrase:
    """Return how a backlog grows or shrinks, in words."""
    return phrase(
        "%(arriving)s arrive and %(ended)s end per minute",
        arriving=f"{figures.arriving:,.0f}",
        ended=f"{figures.rate:,.0f}",
    )


def backlog_grows(seen: Observed) -> Iterable[Problem]:
    """Return that all slots are busy while much waits for long, unless one type floods."""
    able = [worker for worker in seen.live if not worker.quiet]
    slots, busy = sum(worker.concurrency for worker in able), sum(worker.running for worker in able)
    waiting = [type for type in flowing(seen) if not is_at_limit(type)]
    oldest = max((type.waiting for type in waiting), default=0.0)
    arriving = sum(type.arriving for type in seen.types)
    if slots and busy >= slots and oldest > LONG and not any(floods(type, arriving) for type in waiting):
        text = phrase(
            "All %(slots)d slots are busy, and %(waiting)s, the oldest for %(oldest)s.",
            slots=slots,
            waiting=waiting_text(seen),
            oldest=duration(oldest),
        )
        yield Problem(
            ProblemCode.BACKLOG_GROWS, text, phrase("Start more workers: %(command)s", command=START)
        )


def types_at_limit(seen: Observed) -> Iterable[Problem]:
    """Return the types that run as many works as they may while others wait."""
    for type in flowing(seen):
        if is_at_limit(type) and type.pending:
            text = phrase(
                "%(type)s runs at its limit of %(most)d, and %(works)s.",
                type=type.type,
                most=type.max_running,
                works=works(type),
            )
            remedy = phrase(
                "Raise the limit in its row of the table of types, or wait until its works have run."
            )
            yield Problem(ProblemCode.AT_LIMIT, text, remedy, "type", type.type)


def is_at_limit(type: TypeFigures) -> bool:
    """Tell whether as many works of the type run as may."""
    return bool(type.max_running) and type.running >= type.max_running


# Failures


def worker_trouble(seen: Observed) -> Iterable[Problem]:
    """Return the live workers that have reported trouble."""
    for worker in seen.live:
        if worker.trouble:
            text = phrase(
                "Worker %(worker)s reports a problem: %(trouble)s",
                worker=called(worker),
                trouble=sentence(worker.trouble),
            )
            remedy = phrase("Start it again.")
            yield Problem(ProblemCode.WORKER_TROUBLE, text, remedy, "worker", worker.id)


def workers_silent(seen: Observed) -> Iterable[Problem]:
    """Return the workers that fell silent, the last to be seen first."""
    stale = sorted((each for each in seen.workers if each.stale), key=lambda each: each.silent)
    for worker in stale:
        text = phrase(
            "Worker %(worker)s has sent no heartbeat for %(silent)s, and did not sign off.",
            worker=called(worker),
            silent=duration(worker.silent),
        )
        remedy = phrase(
            "Check whether its process runs. Other workers take its works over once their leases have lapsed."
        )
        yield Problem(ProblemCode.WORKER_SILENT, text, remedy, "worker", worker.id)


def deaths_rise(seen: Observed) -> Iterable[Problem]:
    """Return the problem that works die more often than in the rest of the hour, with their types."""
    lately = sum(seen.died_lately.values())
    before = seen.died_before * seen.lately / max(3600.0 - seen.lately, 1.0)
    if lately < RISE or lately <= before * RISE_FACTOR:
        return
    by_number = sorted(seen.died_lately.items(), key=lambda item: (-item[1], item[0]))
    named = listed([f"{type} ({number:,})" for type, number in by_number[:3]], len(by_number))
    text = phrase(
        "%(number)s works died during the last %(lately)s: %(types)s.",
        number=bounded(lately, seen.died_capped),
        lately=duration(seen.lately),
        types=named,
    )
    yield Problem(ProblemCode.DEATHS_RISE, text, MEND_AND_RETRY, "type", by_number[0][0])


def schedules_failing(seen: Observed) -> Iterable[Problem]:
    """Return the schedules that cannot be fired."""
    for schedule in seen.failing:
        text = phrases(
            "The schedule %(name)s has failed %(count)d time: %(error)s",
            "The schedule %(name)s has failed %(count)d times: %(error)s",
            schedule.failures,
            name=schedule.name,
            error=error_sentence(schedule.error),
        )
        remedy = phrase("Mend the code of its type; the schedule is tried again by itself.")
        yield Problem(ProblemCode.SCHEDULE_FAILS, text, remedy, "schedule", schedule.name)


Rule = Callable[[Observed], Iterable[Problem]]

#: In the order of severity, which is that of the codes.
RULES: tuple[Rule, ...] = (
    workers_quiet,
    queues_not_served,
    queues_paused,
    types_not_taken,
    worker_trouble,
    types_that_flood,
    backlog_grows,
    deaths_rise,
    types_at_limit,
    types_paused,
    schedules_failing,
    workers_silent,
)
#: Those that say something while no worker is alive.
WITHOUT_WORKERS: tuple[Rule, ...] = (
    queues_paused,
    deaths_rise,
    types_paused,
    schedules_failing,
    workers_silent,
)
