"""What a process of either release does with the queue.

python -m upgraded enqueue 5      queues works of each kind, and prints their ids, kinds and numbers as JSON
python -m upgraded wait           waits until no work is left to run; fails after a minute
python -m upgraded releases       prints how many handlers each release has run
python -m upgraded report FILE    prints what became of the works that enqueue has listed in a file
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import django

#: Kinds whose value is that of the chain or the group, and not of the work alone.
OF_CHAIN, OF_GROUP = {"step"}, {"fan_out"}
LONGEST_WAIT = 60.0


def enqueue(count: str) -> None:
    print(json.dumps(list(queued(int(count)))))


def queued(count: int) -> Iterator[dict[str, Any]]:
    from django_ayework import enqueue, enqueue_many
    from upgraded import works

    def entry(handle: Any, kind: str, number: int) -> dict[str, Any]:
        return {"id": handle.id, "kind": kind, "number": number}

    for number in range(count):
        for kind in (works.plain, works.together, works.waits, works.flaky, works.fan_out):
            yield entry(enqueue(kind(number=number)), kind.name.partition(".")[2], number)
        chain = enqueue(works.step(number=number))
        yield entry(chain, "step", number)
        yield entry(enqueue(works.plain(number=number), blockers=[chain]), "plain", number)
        yield entry(enqueue(works.plain(number=number), delay=0.3), "plain", number)
    batch = enqueue_many([works.gathered(number) for number in range(count)])
    yield from (entry(handle, "gathered", number) for number, handle in enumerate(batch))


def wait() -> None:
    from django_ayework.models import Work

    until = time.monotonic() + LONGEST_WAIT
    while left := Work.objects.exclude(status__in=("success", "dead", "cancelled")).count():
        if time.monotonic() > until:
            raise SystemExit(f"{left} works have not ended in time.")
        time.sleep(0.05)


def releases() -> None:
    from django.db import models

    from upgraded.models import Run

    counted = Run.objects.values_list("release").annotate(models.Count("id")).order_by()
    print(json.dumps(dict(counted)))


def report(file: str) -> None:
    from django_ayework import get_handle
    from django_ayework.models import Work
    from upgraded.models import Run

    def value(id: str, kind: str) -> Any:
        handle = get_handle(id)
        ask = handle.chain if kind in OF_CHAIN else handle.group if kind in OF_GROUP else handle.result
        try:
            return ask(timeout=0)
        except Exception as error:
            return repr(error)

    with open(file) as listed:
        entries = json.load(listed)
    works = Work.objects.values_list("id", "type", "status", "attempt")
    runs = Run.objects.order_by("id").values_list("work", "attempt", "release")
    values = [value(entry["id"], entry["kind"]) for entry in entries]
    print(json.dumps({"works": list(works), "runs": list(runs), "values": values}))


if __name__ == "__main__":
    django.setup()
    {"enqueue": enqueue, "wait": wait, "releases": releases, "report": report}[sys.argv[1]](*sys.argv[2:])
