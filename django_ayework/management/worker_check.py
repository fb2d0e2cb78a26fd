"""``ayework_worker --check``: is everything there, and how many connections does it take?"""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import ERROR, run_checks
from django.core.management.base import OutputWrapper

from django_ayework.conf import get_settings
from django_ayework.flow.readiness import Finding, Weight, findings
from django_ayework.management.worker_options import WorkerOptions
from django_ayework.ports.pubsub import get_pubsub
from django_ayework.ports.pubsub.protocol import connections_of
from django_ayework.rules.budget import Budget
from django_ayework.store.database import alias


def check_worker(chosen: WorkerOptions, out: OutputWrapper) -> int:
    """Print what these options take and what is wrong; return 0, or 1 if there is a problem."""
    budget = Budget(
        concurrency=chosen.concurrency,
        processes=chosen.processes,
        replaced=bool(chosen.max_works or chosen.max_memory),
        scheduler=chosen.scheduler and not chosen.burst,
        unhandled_groups=get_settings().unhandled_group is not None,
        wakeups=connections_of(get_pubsub()),
    )
    out.write("\n".join(budget_lines(budget)))
    out.write("Configuration:")
    found = list(findings(chosen.queues, chosen.types, budget))
    found += system_checks() if not problems(found) else []
    for finding in found:
        out.write(f"  {finding.weight:<8} {finding.text}")
    return int(problems(found))


def budget_lines(budget: Budget) -> list[str]:
    """Return the connection budget as text."""
    parts = [f"{budget.concurrency} for handlers", *(f"1 for {what}" for what in budget.own)]
    processes = "1 process" if budget.processes == 1 else f"{budget.processes} processes"
    lines = [
        f"Connections to the database {alias()!r}: at most {budget.usual}",
        f"  {processes}, each with {', '.join(parts)}",
    ]
    if budget.most > budget.usual:
        lines.append(f"  at most {budget.most} while all of them are being replaced")
    return lines


def system_checks() -> Iterator[Finding]:
    """Run the system checks of this app, those of the database included."""
    for message in run_checks(databases=[alias()]):
        if str(message.id).startswith("ayework."):
            weight = Weight.PROBLEM if message.level >= ERROR else Weight.NOTE
            hint = f" {message.hint}" if message.hint else ""
            yield Finding(weight, f"{message.msg}{hint} ({message.id})")


def problems(found: list[Finding]) -> bool:
    """Tell whether anything would keep workers from their work."""
    return any(finding.weight is Weight.PROBLEM for finding in found)
