"""What each page of the admin asks of the database beside two million works.

    make bench FIGURES=admin             SCALE=0.1 for 200 000 works

Each page is opened once to warm up, then ``ROUNDS`` times. The figures of a page are the median of the
seconds in which the database answered all statements, the most statements, and the median of the seconds of
the whole response.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

os.environ["BENCH_ADMIN"] = "1"

from bench.harness import scratch_database
from bench.report.files import scaled
from bench.rows import add_copies

ROUNDS = 5
#: Milliseconds of SQL that a page may take.
BUDGET = 100.0
TYPES = 20
MEMBERS = 5000
REASONS = ("exhausted", "aborted", "expired")


@dataclass(frozen=True, slots=True)
class Figures:
    """One page: milliseconds of SQL, statements, milliseconds of the response."""

    page: str
    sql: float
    statements: int
    response: float
    status: int = 200

    def line(self) -> str:
        if self.status != 200:
            return f"  {self.page:44}   answered with {self.status}"
        over = f"   over {BUDGET:.0f} ms" if self.sql > BUDGET else ""
        return f"  {self.page:44}{self.sql:9.1f}{self.statements:8}{self.response:11.1f}{over}"


def main() -> None:
    """Fill a scratch database, open each page, print its figures."""
    with scratch_database() as vendor:
        started = time.monotonic()
        works = fill()
        print(f"{vendor}: {works:,} works, written in {time.monotonic() - started:.0f} s; {ROUNDS} rounds")
        print(f"  {'page':44}{'SQL ms':>9}{'queries':>8}{'response ms':>11}")
        found = [figures for page, address in addresses().items() for figures in measured(page, address)]
        for figures in found:
            print(figures.line(), flush=True)
        over = sum(figures.sql > BUDGET for figures in found)
        print(f"  {len(found)} pages, {over} over {BUDGET:.0f} ms of SQL")
    if any(figures.status != 200 for figures in found):
        raise SystemExit("expected every page to answer with 200")


def fill() -> int:
    """Add works in every status, of many types and one rare one, and a group; return how many."""
    from django_ayework.models import Work
    from django_ayework.store.database import clock

    now = clock.now()
    start = 0

    def add(count: int, ago: float, **columns: Any) -> None:
        nonlocal start
        then = now - timedelta(seconds=ago)
        moments = {"queued_at": then, "run_at": then} | columns
        add_copies(count, start, **moments)
        start += count

    def ended(ago: float) -> dict[str, Any]:
        then = now - timedelta(seconds=ago)
        return {"started_at": then, "ended_at": then + timedelta(seconds=2), "attempt": 1, "delivery": 1}

    for number in range(TYPES):
        type = f"bench.type{number:02}"
        queue = f"queue{number % 4}"
        add(
            scaled(60_000), 7200 - number, type=type, queue=queue, status="success", result="1", **ended(7000)
        )
        add(
            scaled(10_000),
            6000 - number,
            type=type,
            queue=queue,
            status="dead",
            reason=REASONS[number % len(REASONS)],
            error=f"ValueError: no luck with {number}",
            cause=f"{number:016x}",
            **ended(5000),
        )
        add(scaled(12_500), 900 - number, type=type, queue=queue)
        add(
            scaled(15_000),
            800 - number,
            type=type,
            queue=queue,
            status="scheduled",
            run_at=now + timedelta(days=10),
        )
    add(scaled(10_000), 300, type="bench.type01", status="cancelled", ended_at=now)
    add(scaled(500), 4000, type="bench.rare", status="success", result="1", **ended(3000))
    add(
        scaled(500),
        4000,
        type="bench.rare",
        status="dead",
        reason="exhausted",
        error="KeyError: 7",
        **ended(10),
    )
    add(
        200,
        60,
        type="bench.type02",
        status="running",
        started_at=now,
        worker="worker-1",
        leased_until=now + timedelta(days=1),
        attempt=1,
        delivery=1,
    )
    add(10, 4000, type="bench.noop", status="dead", reason="exhausted", error="KeyError: 7", **ended(10))
    add_rest(now)
    analyze()
    return Work.objects.count()


def add_rest(now: Any) -> None:
    """Add a group with a gate, workers, and figures of a day."""
    from bench.works import noop
    from django_ayework import dependency, enqueue_many
    from django_ayework.testing.factories import ThroughputFactory, WorkerProcessFactory

    members = [noop(number=number) for number in range(scaled(MEMBERS, 100))]
    enqueue_many([*members, dependency(on=members, queue=[noop(number=-1)])], together=True)
    for number in range(5):
        WorkerProcessFactory(id=f"worker-{number}", name=f"worker-{number}", queues="")
    for quarter in range(96):
        start = now.replace(minute=0, second=0, microsecond=0) - timedelta(minutes=15 * quarter)
        for number in range(TYPES):
            ThroughputFactory(seconds=900, start=start, type=f"bench.type{number:02}", succeeded=number)
    for minute in range(120):
        start = now.replace(second=0, microsecond=0) - timedelta(minutes=minute)
        for number in range(TYPES):
            ThroughputFactory(seconds=60, start=start, type=f"bench.type{number:02}", succeeded=number)


def analyze() -> None:
    """Bring the planner's statistics up to date, as the server does by itself in time."""
    from django.apps import apps
    from django.db import connection

    verb = {"postgresql": "VACUUM ANALYZE", "mysql": "ANALYZE TABLE"}.get(connection.vendor, "ANALYZE")
    with connection.cursor() as cursor:
        for model in apps.get_app_config("django_ayework").get_models():
            if model._meta.managed and not model._meta.proxy:
                cursor.execute(f"{verb} {model._meta.db_table}")


def addresses() -> dict[str, str]:
    """Return the pages to open."""
    from django.urls import NoReverseMatch, reverse

    from django_ayework.models import Group, Schedule, Work

    def page(name: str, *args: str, **query: str) -> str:
        try:
            return reverse(f"admin:django_ayework_{name}", args=args, query=query or None)
        except NoReverseMatch:
            return ""

    dead = Work.objects.filter(status="dead", type="bench.noop").values_list("id", flat=True)[0]
    gate = Work.objects.filter(type__startswith="@").values_list("id", flat=True)[0]
    group = Group.objects.values_list("id", flat=True)[0]
    found = {
        "overview": page("overview_changelist"),
        "works": page("work_changelist"),
        "works, last page": page("work_changelist", p="100"),
        "dead letters": page("deadletter_changelist"),
        "dead letters, list": page("deadletter_changelist", type="bench.type03"),
        "a dead work": page("work_change", dead),
        "edit and retry": page("work_edit", dead),
        "a gate": page("work_change", gate),
        "gates": page("gate_changelist"),
        "gates that have opened": page("gate_changelist", status="success"),
        "groups": page("group_changelist"),
        f"a group of {scaled(MEMBERS, 100):,}": page("group_change", group),
        "bulk actions": page("bulkaction_changelist"),
        "new bulk action": page("bulkaction_new", action="retry", status="dead"),
        "controls": page("workcontrol_changelist"),
        "schedules": page("schedule_changelist"),
        "workers": page("workerprocess_changelist"),
        "a worker": page("workerprocess_change", "worker-1"),
        "store entries": page("storeentry_changelist"),
    }
    assert not Schedule.objects.exists()
    for query in queries(dead, group):
        words = "&".join(f"{name}={value[:20]}" for name, value in query.items())
        found[f"works?{words}"] = page("work_changelist", **query)
    return {name: address for name, address in found.items() if address}


def queries(dead: str, group: str) -> Iterator[dict[str, str]]:
    """Yield the filters and searches of the list of works."""
    for status in ("pending", "scheduled", "blocked", "running", "success", "dead", "cancelled"):
        yield {"status": status}
        yield {"status": status, "type": "bench.rare"}
    yield {"type": "bench.rare"}
    yield {"type": "bench.type03"}
    yield {"queue": "queue2"}
    yield {"queue": "nowhere"}
    yield {"reason": "aborted"}
    yield {"worker": "worker-1"}
    yield {"fairness": "nobody"}
    yield {"type": "bench.rare", "queue": "queue2"}
    yield {"q": dead}
    yield {"q": group}
    yield {"q": "bench.rare"}
    yield {"q": "bench.type"}
    yield {"q": "shop.order:17"}
    yield {"q": "no luck with 7"}
    yield {"q": "found nowhere at all"}


def measured(page: str, address: str) -> Iterator[Figures]:
    """Open a page several times; yield its figures."""
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test import Client

    user, _ = get_user_model().objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(user)
    rounds = []
    for _ in range(ROUNDS + 1):
        spent: list[float] = []

        def timed(execute: Any, *arguments: Any, spent: list[float] = spent) -> Any:
            before = time.perf_counter()
            try:
                return execute(*arguments)
            finally:
                spent.append((time.perf_counter() - before) * 1000)

        started = time.perf_counter()
        with connection.execute_wrapper(timed):
            response = client.get(address)
        took = (time.perf_counter() - started) * 1000
        rounds.append((sum(spent), len(spent), took, response.status_code))
    sql, counts, responses, statuses = zip(*rounds[1:], strict=True)
    yield Figures(page, statistics.median(sql), max(counts), statistics.median(responses), max(statuses))


if __name__ == "__main__":
    main()
