"""The options of ``ayework_worker``, read and checked; and its ``--check``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.checks import ERROR, run_checks
from django.core.management.base import CommandError, CommandParser, OutputWrapper

from django_ayework.conf import get_settings
from django_ayework.define.registry import registry
from django_ayework.errors import UnknownWorkType
from django_ayework.flow.readiness import Finding, Severity, findings
from django_ayework.ports.pubsub import get_pubsub
from django_ayework.ports.pubsub.base import connections_of
from django_ayework.rules.health import Budget
from django_ayework.store.database import alias
from django_ayework.worker.worker import Worker

# --- worker options ---
# The options of ``ayework_worker``, read and checked.

NUMBERS = ("concurrency", "processes", "max_works", "max_memory")
LONGEST_NAME = 64
#: What makes no sense for a worker that starts anew by itself.
NOT_RELOADED = ("burst", "max_works", "max_memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What a command line asks for."""

    queues: tuple[str, ...]
    types: tuple[str, ...]
    exclude_types: tuple[str, ...]
    concurrency: int
    processes: int
    name: str
    burst: bool
    max_works: int | None
    max_memory: int | None
    scheduler: bool

    def worker(self, place: int | None = None) -> Worker:
        """Build the worker, or one of several: that of this place."""
        return Worker(
            queues=self.queues,
            types=self.types,
            exclude_types=self.exclude_types,
            concurrency=self.concurrency,
            name=self.name if place is None or not self.name else f"{self.name}-{place}",
            burst=self.burst,
            max_works=self.max_works,
            max_memory=self.max_memory,
            scheduler=self.scheduler,
        )


def add_worker_options(parser: CommandParser) -> None:
    """Add everything that a worker can be told."""
    add = parser.add_argument
    add("--queues", default="", help="Only these queues, comma separated. Default: all.")
    add("--types", default="", help="Only these types of work, comma separated. Default: all.")
    add("--exclude-types", default="", help="Not these types of work, comma separated.")
    add("--concurrency", type=int, help='Works at a time, per process. Default: AYEWORK["CONCURRENCY"].')
    add("--processes", type=int, default=1, help="Worker processes, kept alive by a supervisor. Default: 1.")
    add("--burst", action="store_true", help="Stop once nothing is due and nothing runs.")
    add("--max-works", type=int, help="End, or be replaced, after this many attempts.")
    add("--max-memory", type=int, metavar="MB", help="End, or be replaced, above this much memory.")
    add("--name", default="", help="A name to tell this worker by.")
    add("--no-scheduler", action="store_true", help="Fire no schedules; others do, or ayework_scheduler.")
    add("--reload", action="store_true", help="Start anew when code changes (for development).")
    add("--check", action="store_true", help="Check the configuration, count connections, start nothing.")
    add("--health-port", type=int, metavar="PORT", help="Answer /live and /ready over HTTP on this port.")
    add("--health-host", default="127.0.0.1", metavar="HOST", help="Where to do so. Default: 127.0.0.1.")


def worker_options(given: Mapping[str, Any]) -> WorkerOptions:
    """Return the options; raise CommandError for what cannot be used."""
    for option in NUMBERS:
        if given[option] is not None and given[option] < 1:
            raise CommandError(f"expected {flag(option)} to be 1 or more, got: {given[option]}.")
    if given["reload"]:
        require_alone(given)
    require_short(given["name"], given["processes"])
    types, excluded = known_types(given["types"]), known_types(given["exclude_types"])
    if types and not set(types) - set(excluded):
        raise CommandError("expected --exclude-types to leave some of --types, got the same ones.")
    return WorkerOptions(
        queues=listed(given["queues"]),
        types=types,
        exclude_types=excluded,
        concurrency=given["concurrency"] or get_settings().concurrency,
        processes=given["processes"],
        name=given["name"],
        burst=given["burst"],
        max_works=given["max_works"],
        max_memory=given["max_memory"],
        scheduler=not given["no_scheduler"],
    )


def require_alone(given: Mapping[str, Any]) -> None:
    """Raise when something does not go with ``--reload``."""
    others = [flag(option) for option in NOT_RELOADED if given[option]]
    if given["processes"] > 1:
        others.append("--processes")
    if others:
        raise CommandError(f"expected --reload without {', '.join(others)}: it is for development.")


def require_short(name: str, processes: int) -> None:
    """Raise when a name does not fit its column, together with the number of its process."""
    longest = LONGEST_NAME - (len(f"-{processes}") if processes > 1 else 0)
    if len(name) > longest:
        raise CommandError(f"expected --name to have at most {longest} characters, got: {len(name)}.")


def known_types(text: str) -> tuple[str, ...]:
    """Return listed types of work; raise CommandError, suggesting the nearest, when one is unknown."""
    types = listed(text)
    try:
        for type in types:
            registry.get(type)
    except UnknownWorkType as unknown:
        raise CommandError(str(unknown)) from None
    return types


def listed(text: str) -> tuple[str, ...]:
    """Return comma-separated names.

    >>> listed("mail, fax,")
    ('mail', 'fax')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())


def flag(option: str) -> str:
    """Return an option as it is written on the command line."""
    return f"--{option.replace('_', '-')}"


# --- worker check ---
# ``ayework_worker --check``: is everything there, and how many connections does it take?


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
        out.write(f"  {finding.severity:<8} {finding.text}")
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
            severity = Severity.PROBLEM if message.level >= ERROR else Severity.NOTE
            hint = f" {message.hint}" if message.hint else ""
            yield Finding(severity, f"{message.msg}{hint} ({message.id})")


def problems(found: list[Finding]) -> bool:
    """Tell whether anything would keep workers from their work."""
    return any(finding.severity is Severity.PROBLEM for finding in found)
