"""A process that enqueues until its standard input ends: ``python -m chaos.enqueuer``.

Each call is noted before, with the ids it would queue, and after, with what became of it.
"""

from __future__ import annotations

import os
import random
import select
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos.ledger import note

#: Enqueueing calls per second.
PACE = float(os.environ.get("CHAOS_PACE", "20"))
#: Of all calls, those that are rolled back on purpose.
ROLLED_BACK = 0.1


class TakenBack(Exception):
    """Rolls a transaction back on purpose."""


@dataclass
class Plan:
    """One call: the requests it queues, how, and what the checker has to know."""

    kind: str
    requests: Sequence[Any]
    send: Callable[[], Sequence[Any]]
    facts: dict[str, Any] = field(default_factory=dict)


def main() -> int:
    """Enqueue, in a random order that the seed decides."""
    import django

    django.setup()
    dice = random.Random(os.environ.get("CHAOS_SEED", "0"))
    kinds = [name for name in KINDS for _ in range(WEIGHTS.get(name, 2))]
    kinds += os.environ.get("CHAOS_EXTRAS", "").split(",") * 8 if os.environ.get("CHAOS_EXTRAS") else []
    note("up")
    # The first calls are one of each kind, and one that is rolled back, so that a short run has them all.
    for number, kind in enumerate([*dice.sample(list(KINDS), len(KINDS)), "plain"]):
        carry_out(f"{os.getpid()}-first-{number}", plan(kind, dice), number == len(KINDS))
    note("first calls")
    number = 0
    while not told_to_stop(dice.uniform(0.5, 1.5) / PACE):
        number += 1
        carry_out(f"{os.getpid()}-{number}", plan(dice.choice(kinds), dice), dice.random() < ROLLED_BACK)
    note("end")
    return 0


def told_to_stop(seconds: float) -> bool:
    """Wait; return whether the standard input has ended."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and not sys.stdin.readline()


def carry_out(promise: str, call: Plan, is_taken_back: bool) -> None:
    """Make one call in a transaction, and note what became of it."""
    ids = [request.id for request in call.requests]
    note("will", p=promise, kind=call.kind, ids=ids, facts=call.facts)
    began = time.monotonic()
    outcome, facts = transact(call, is_taken_back)
    note(outcome, p=promise, took=round(time.monotonic() - began, 3), **facts)
    if "error" in facts:
        from django.db import connection

        connection.close()
        time.sleep(0.05)


def transact(call: Plan, is_taken_back: bool) -> tuple[str, dict[str, Any]]:
    """Enqueue in a transaction. Only an error while committing leaves the outcome unknown."""
    from django.db import transaction

    ids: list[str] = []
    has_enqueued = False
    try:
        with transaction.atomic():
            ids = [handle.id for handle in call.send()]
            if is_taken_back:
                raise TakenBack
            has_enqueued = True
    except TakenBack:
        return "rolled back", {}
    except Exception as error:
        outcome = "unknown" if has_enqueued else "rolled back"
        return outcome, {"error": f"{type(error).__name__}: {error}"[:200]}
    return "committed", {"ids": ids}


# --- the kinds of calls --------------------------------------------------------------------------------


def one(kind: str, request: Any, facts: dict[str, Any] | None = None, **options: Any) -> Plan:
    """Return a call that queues one work."""
    from django_ayework import enqueue

    return Plan(kind, [request], lambda: [enqueue(request, **options)], facts or {})


def plan(kind: str, dice: random.Random) -> Plan:
    """Return a call of a kind."""
    return KINDS_AND_EXTRAS[kind](dice)


def plan_plain(dice: random.Random) -> Plan:
    from chaos import works

    make = dice.choice([works.plain, works.asleep])
    return one("plain", make(seconds=dice.choice([0.0, 0.02, 0.2, 0.5, 1.0])))


def plan_flaky(dice: random.Random) -> Plan:
    from chaos import works

    return one("flaky", works.flaky(failures=dice.randint(1, 3)))


def plan_doomed(dice: random.Random) -> Plan:
    from chaos import works

    return one("doomed", works.doomed())


def plan_once(dice: random.Random) -> Plan:
    from chaos import works

    return one("once", works.once(seconds=dice.choice([0.0, 0.02, 0.2])))


def plan_once_async(dice: random.Random) -> Plan:
    from chaos import works

    return one("once async", works.once_async(seconds=dice.choice([0.0, 0.02, 0.2])))


def plan_atomic(dice: random.Random) -> Plan:
    from chaos import works

    return one("atomic", works.atomic())


def plan_staged(dice: random.Random) -> Plan:
    from chaos import works

    return one("staged", works.staged(seconds=dice.choice([0.0, 0.1, 0.5, 1.0])))


def plan_fan(dice: random.Random) -> Plan:
    from chaos import works

    values = [dice.randint(1, 100) for _ in range(dice.randint(1, 8))]
    make = dice.choice([works.fan, works.atomic_fan])
    return one("fan", make(values=values), {"values": values})


def plan_chain(dice: random.Random) -> Plan:
    from chaos import works

    left = dice.randint(1, 4)
    return one("chain", works.step(left=left, total=0), {"steps": left + 1})


def plan_blocked(dice: random.Random) -> Plan:
    from chaos import works
    from django_ayework import enqueue

    lengths = [dice.randint(1, 3) for _ in range(2)]
    chains = [works.step(left=length - 1, total=0) for length in lengths]
    waits = works.blocked()

    def send() -> list[Any]:
        handles = [enqueue(chain) for chain in chains]
        return [*handles, enqueue(waits, blockers=handles)]

    return Plan("blocked", [*chains, waits], send, {"lengths": lengths})


def plan_delayed(dice: random.Random) -> Plan:
    from chaos import works

    delay = dice.uniform(0.5, 2.0)
    return one("delayed", works.plain(seconds=0.0), {"delay": delay}, delay=delay)


def plan_batch(dice: random.Random) -> Plan:
    from chaos import works
    from django_ayework import enqueue_many

    requests = [works.batch(dice.randint(1, 100)) for _ in range(dice.randint(2, 12))]
    return Plan("batch", requests, lambda: enqueue_many(requests))


def plan_together(dice: random.Random) -> Plan:
    from chaos import works
    from django_ayework import enqueue_many

    values = [dice.randint(1, 100) for _ in range(dice.randint(2, 6))]
    requests = [works.leaf(value=value) for value in values]
    return Plan("together", requests, lambda: enqueue_many(requests, together=True), {"values": values})


def plan_keyed(dice: random.Random) -> Plan:
    from chaos import works
    from django_ayework import Dedup

    return one("keyed", works.keyed(), delay=0.5, dedup=Dedup(f"key-{dice.randint(1, 3)}"))


def plan_unit(dice: random.Random) -> Plan:
    from chaos import works

    return one("unit", works.unit(number=1), delay=0.5, unit=f"unit-{dice.randint(1, 3)}")


def plan_exits(dice: random.Random) -> Plan:
    from chaos import works

    # A process that starts takes a second; more exits would be a storm of processes.
    return one("exits", works.exits() if dice.random() < 0.25 else works.plain(seconds=0.0))


def plan_hangs(dice: random.Random) -> Plan:
    from chaos import works

    rare = dice.random() < 0.1
    return one("hangs", works.deaf(seconds=6.0) if rare else works.hangs())


def plan_panics(dice: random.Random) -> Plan:
    from chaos import works

    return one("panics", works.panics(which=dice.choice(["panic", "exit", "interrupt", "generator"])))


def plan_eats(dice: random.Random) -> Plan:
    from chaos import works

    return one("eats", works.eats(megabytes=dice.randint(5, 30)))


KINDS: dict[str, Callable[[random.Random], Plan]] = {
    "plain": plan_plain,
    "flaky": plan_flaky,
    "doomed": plan_doomed,
    "once": plan_once,
    "once async": plan_once_async,
    "atomic": plan_atomic,
    "staged": plan_staged,
    "fan": plan_fan,
    "chain": plan_chain,
    "blocked": plan_blocked,
    "delayed": plan_delayed,
    "batch": plan_batch,
    "together": plan_together,
    "keyed": plan_keyed,
    "unit": plan_unit,
}
#: Kinds that are faults themselves.
EXTRAS: dict[str, Callable[[random.Random], Plan]] = {
    "exits": plan_exits,
    "hangs": plan_hangs,
    "panics": plan_panics,
    "eats": plan_eats,
}
KINDS_AND_EXTRAS = KINDS | EXTRAS
WEIGHTS = {"plain": 5, "atomic": 4, "fan": 4, "doomed": 1}


if __name__ == "__main__":
    sys.exit(main())
