"""A process whose threads make single calls on works of one another: ``python -m chaos.caller``.

Each call is one transaction. How long it took, and the error it raised, is noted.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from chaos.ledger import note

THREADS = int(os.environ.get("CHAOS_THREADS", "4"))
#: Ids that the threads of this process have queued lately: the fewer, the more often two calls meet.
recent: deque[str] = deque(maxlen=60)


def main() -> int:
    """Call until the standard input ends."""
    import django

    django.setup()
    note("up")
    is_over = threading.Event()
    threads = [threading.Thread(target=call_on, args=(number, is_over)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    is_over.set()
    for thread in threads:
        thread.join()
    note("end")
    return 0


def call_on(number: int, is_over: threading.Event) -> None:
    """Make calls, one after the other."""
    from django.db import connection

    dice = random.Random(f"{os.environ.get('CHAOS_SEED', '0')}-{number}")
    while not is_over.wait(dice.uniform(0, 0.02)):
        name = dice.choice(NAMES)
        began = time.monotonic()
        error = make(CALLS[name], dice)
        note("call", what=name, took=round(time.monotonic() - began, 4), error=error)
        if error:
            connection.close()
    connection.close()


def make(call: Callable[[random.Random], Any], dice: random.Random) -> str:
    """Make one call in a transaction; return the database's error, or nothing. A refusal is an answer."""
    from django.db import transaction

    from django_ayework.errors import AyeworkError

    try:
        with transaction.atomic():
            made = call(dice)
    except (AyeworkError, LookupError):
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    recent.extend(handle.id for handle in made or ())
    return ""


def some(dice: random.Random, count: int) -> list[str]:
    """Return ids that were queued lately."""
    ids = list(recent)
    if len(ids) < count:
        raise LookupError("nothing was queued yet")
    return dice.sample(ids, count)


def enqueue_one(dice: random.Random) -> Any:
    from chaos import works
    from django_ayework import enqueue

    kinds = [works.plain(seconds=0.0), works.atomic(), works.staged(seconds=0.0), works.flaky(failures=1)]
    return [enqueue(dice.choice(kinds), delay=dice.choice([0.0, 1.0]))]


def enqueue_group(dice: random.Random) -> Any:
    from chaos import works
    from django_ayework import enqueue, enqueue_many

    values = [dice.randint(1, 9) for _ in range(4)]
    if dice.random() < 0.5:
        return enqueue_many([works.leaf(value=value) for value in values], together=True)
    return [enqueue(works.fan(values=values))]


def enqueue_gate(dice: random.Random) -> Any:
    """Watch works that others may end, cancel or retry at this moment."""
    from chaos import works
    from django_ayework import dependency, enqueue, get_handle

    watched = some(dice, 3)
    gate = dependency(
        on=[get_handle(id) for id in watched],
        queue=[works.plain(seconds=0.0)],
        condition="all-done",
        timeout=2.0,
    )
    return [enqueue(gate)]


def enqueue_blocked(dice: random.Random) -> Any:
    from chaos import works
    from django_ayework import enqueue

    return [enqueue(works.asleep(seconds=0.0), blockers=some(dice, 2))]


def enqueue_keyed(dice: random.Random) -> Any:
    from chaos import works
    from django_ayework import Dedup, enqueue

    if dice.random() < 0.5:
        return [enqueue(works.keyed(), dedup=Dedup(f"key-{dice.randint(1, 3)}"))]
    return [enqueue(works.unit(number=1), unit=f"unit-{dice.randint(1, 3)}")]


def cancel_one(dice: random.Random) -> None:
    from django_ayework import cancel

    cancel(some(dice, 1)[0])


def complete_one(dice: random.Random) -> None:
    from django_ayework import complete

    complete(some(dice, 1)[0])


def retry_one(dice: random.Random) -> None:
    from django_ayework import retry

    retry(some(dice, 1)[0])


def trigger_some(dice: random.Random) -> None:
    from django_ayework import trigger

    trigger(*some(dice, 2))


def delete_some(dice: random.Random) -> None:
    from django_ayework import delete_chains

    delete_chains(*some(dice, 2), cascade=True)


CALLS: dict[str, Callable[[random.Random], Any]] = {
    "enqueue": enqueue_one,
    "group": enqueue_group,
    "gate": enqueue_gate,
    "blocked": enqueue_blocked,
    "keyed": enqueue_keyed,
    "cancel": cancel_one,
    "complete": complete_one,
    "retry": retry_one,
    "trigger": trigger_some,
    "delete": delete_some,
}
NAMES = [*CALLS, "enqueue", "enqueue", "group", "gate", "cancel", "complete", "retry"]


if __name__ == "__main__":
    sys.exit(main())
