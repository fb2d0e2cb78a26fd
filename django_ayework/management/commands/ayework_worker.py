"""``ayework_worker``: run works until told to stop; or check, with ``--check``, whether a worker could."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from django.core.checks import ERROR, run_checks
from django.core.management.base import CommandError, CommandParser, OutputWrapper

from django_ayework.conf import get_settings
from django_ayework.define.registry import registry
from django_ayework.errors import UnknownWorkType
from django_ayework.flow.readiness import Finding, Severity, findings, hints_on_queues
from django_ayework.management.base import DatabaseCommand, log_named, show_engine_log
from django_ayework.ports.pubsub import get_pubsub
from django_ayework.ports.pubsub.base import connections_of
from django_ayework.rules.health import Budget
from django_ayework.store.database import alias
from django_ayework.worker.child import Tie, inherited
from django_ayework.worker.health import HealthServer, report_on, serve_in_thread
from django_ayework.worker.serving import (
    REFUSED,
    exit_in_time,
    is_reloaded,
    serve,
    serve_until_changed,
    signals_held_back,
    start_again_and_again,
)
from django_ayework.worker.supervisor import Supervisor
from django_ayework.worker.threads import leave_out_what_is_loaded, take_turns_quickly
from django_ayework.worker.worker import Worker

NUMBERS = ("concurrency", "processes", "max_works", "max_memory")
LONGEST_NAME = 64
#: Options that contradict --reload.
NOT_RELOADED = ("burst", "max_works", "max_memory")


class Command(DatabaseCommand):
    """Run works until SIGTERM or SIGINT; a later second signal ends the process at once."""

    help = "Run works until stopped. SIGTERM lets running works finish; a second signal ends at once."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the worker's options."""
        add_worker_options(parser)

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run; a signal that comes before the worker listens stops it in order as soon as it does."""
        with nullcontext() if options["check"] or options["reload"] else signals_held_back():
            return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        """Read the options, then check, supervise or run a worker."""
        chosen = worker_options(options)
        if options["check"]:
            return self.end(check_worker(chosen, self.stdout))
        show_engine_log(options["verbosity"])
        if options["reload"] and not is_reloaded():
            return self.end(start_again_and_again())
        if self.is_whole_process:
            leave_out_what_is_loaded()
            take_turns_quickly()
        if (new_work := inherited()) is not None:
            return self.end(self.live(chosen, *new_work))
        server = self.health_server(options["health_host"], options["health_port"])
        if chosen.processes > 1:
            return self.end(self.supervise(chosen, server))
        self.end(self.work(chosen, server, options["reload"]))

    def work(self, chosen: WorkerOptions, server: HealthServer | None, reloads: bool) -> int:
        """Run one worker in this process."""
        worker = chosen.worker()
        self.greet(worker)
        if server is not None:
            server.ask = lambda: report_on(worker.vitals)
            serve_in_thread(server)
        status = 0
        with log_named(worker.name):
            if reloads:
                serve_until_changed(worker)
            else:
                status = serve(worker)
        if worker.refusal is not None:
            raise worker.refusal
        return status

    def supervise(self, chosen: WorkerOptions, server: HealthServer | None) -> int:
        """Keep several worker processes alive."""
        self.stdout.write(f"Supervisor of {chosen.processes} processes. Stop with Ctrl-C.")

        def life(end: socket.socket, place: int) -> int:
            return self.live(chosen, end, place)

        with log_named(chosen.name):
            return Supervisor(chosen.processes, life, server).run()

    def live(self, chosen: WorkerOptions, end: socket.socket, place: int) -> int:
        """Run one of several workers, in a process of its own."""
        worker = chosen.worker(place)
        self.greet(worker)
        tie = Tie(end, worker)
        with log_named(worker.name):
            status = serve(worker, second_ends=lambda: not tie.holds)
        if worker.refusal is not None:
            self.stderr.write(f"CommandError: {worker.refusal}")
            return REFUSED
        return status

    def health_server(self, host: str, port: int | None) -> HealthServer | None:
        """Listen on the port of the health checks, if one is given."""
        if port is None:
            return None
        try:
            server = HealthServer(host, port)
        except (OSError, OverflowError) as error:
            raise CommandError(f"cannot listen on {host}:{port} for --health-port: {error}.") from None
        self.stdout.write(f"Health is told at {server.url}/live and {server.url}/ready.")
        return server

    def greet(self, worker: Worker) -> None:
        """Print the worker and hints on its queues."""
        self.stdout.write(
            f"Worker {worker.id}: {worker.concurrency} at a time, "
            f"{', '.join(worker.queues) or 'all queues'}, {len(registry.names())} types of work. "
            "Stop with Ctrl-C."
        )
        for hint in hints_on_queues(worker.queues):
            self.stdout.write(self.style.WARNING(hint))
        self.stdout.flush()

    @property
    def is_whole_process(self) -> bool:
        """Whether the command was given on a command line, so that its process does nothing else."""
        return getattr(self, "_called_from_command_line", False)

    def end(self, status: int) -> None:
        """End with a status; on the command line at once, even if handlers have left threads behind."""
        if self.is_whole_process:
            exit_in_time(status)
        if status:
            sys.exit(status)


# Options


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of a command line, checked."""

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
        """Build the worker, or the worker at a place among several."""
        options = asdict(self)
        del options["processes"]
        if place is not None and self.name:
            options["name"] = f"{self.name}-{place}"
        return Worker(**options)


def add_worker_options(parser: CommandParser) -> None:
    """Add the options of a worker."""
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
    """Return the options; raise CommandError for values that cannot be used."""
    for option in NUMBERS:
        if given[option] is not None and given[option] < 1:
            raise CommandError(f"expected {flag(option)} to be 1 or more, got: {given[option]}.")
    if given["reload"]:
        require_alone(given)
    require_short(given["name"], given["processes"])
    types, excluded = known_types(given["types"]), known_types(given["exclude_types"])
    if types and not set(types) - set(excluded):
        raise CommandError("expected --exclude-types to leave some of --types, got the same ones.")
    same = ("processes", "name", "burst", "max_works", "max_memory")
    return WorkerOptions(
        queues=listed(given["queues"]),
        types=types,
        exclude_types=excluded,
        concurrency=given["concurrency"] or get_settings().concurrency,
        scheduler=not given["no_scheduler"],
        **{option: given[option] for option in same},
    )


def require_alone(given: Mapping[str, Any]) -> None:
    """Raise CommandError for options that contradict ``--reload``."""
    others = [flag(option) for option in NOT_RELOADED if given[option]]
    if given["processes"] > 1:
        others.append("--processes")
    if others:
        raise CommandError(f"expected --reload without {', '.join(others)}: it is for development.")


def require_short(name: str, processes: int) -> None:
    """Raise CommandError if a name with the number of its process does not fit its column."""
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


# --check


def check_worker(chosen: WorkerOptions, out: OutputWrapper) -> int:
    """Print the connections that these options take, and all findings; return 1 for a problem, else 0."""
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
    """Tell whether a finding is a problem."""
    return any(finding.severity is Severity.PROBLEM for finding in found)
