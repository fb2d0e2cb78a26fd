"""``ayework_worker``: run works until stopped; or check, with ``--check``, whether a worker could."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from django.core.management.base import CommandError, CommandParser

from django_ayework.compat import is_reloaded
from django_ayework.conf import get_settings
from django_ayework.define.types import registry
from django_ayework.documentation import refused_as, text_with_notes
from django_ayework.errors import UnknownWorkType
from django_ayework.flow.startup_checks import findings, hints_on_queues
from django_ayework.management.base import (
    DatabaseCommand,
    flag,
    listed,
    log_named,
    refused,
    show_engine_log,
    system_checks,
)
from django_ayework.ports.pubsub import get_pubsub
from django_ayework.ports.pubsub.base import connections_of
from django_ayework.rules.diagnosis import Level, worst
from django_ayework.rules.formatting import counted
from django_ayework.rules.health import Budget
from django_ayework.store.database import alias
from django_ayework.worker.health import HealthServer
from django_ayework.worker.http import PATH, HttpServer, MetricsExporter, MetricsServer, export, providers
from django_ayework.worker.process import (
    REFUSED,
    SupervisorLink,
    exit_in_time,
    freeze_loaded_objects,
    inherited,
    serve,
    serve_until_changed,
    shorten_switch_interval,
    signals_held_back,
    start_again_and_again,
    use_one_cpu,
)
from django_ayework.worker.supervisor import EXPORTER, Supervisor
from django_ayework.worker.worker import Worker

Server = TypeVar("Server", bound=HttpServer)

NUMBERS = ("concurrency", "processes", "max_works", "max_memory")
#: No host has use for more, and a slip of the keyboard would fill its memory.
MOST_PROCESSES = 1000
LONGEST_NAME = 64
#: How --check prints a warning: the worker starts nevertheless.
WORDS = {Level.WARNING: "note"}
#: Where the pages of health and metrics are served unless the command line says otherwise.
LOOPBACK = "127.0.0.1"
#: Options that contradict --reload.
NOT_RELOADED = ("burst", "max_works", "max_memory")


class Command(DatabaseCommand):
    """Run works until SIGTERM, SIGINT or SIGHUP; a later second signal ends the process at once."""

    help = "Run works until stopped. SIGTERM lets running works finish; a second signal ends at once."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the worker's options."""
        add = parser.add_argument
        add("--queues", help="Only these queues, comma separated. Default: all.")
        add("--types", help="Only these types of work, comma separated. Default: all.")
        add("--exclude-types", help="Not these types of work, comma separated.")
        add("--concurrency", type=int, help='Works at a time, per process. Default: AYEWORK["CONCURRENCY"].')
        add("--processes", type=int, default=1, help="Processes, kept alive by a supervisor. Default: 1.")
        add("--one-cpu", action="store_true", help="Keep each process on one CPU, for many short works.")
        add("--burst", action="store_true", help="Stop once nothing is due and nothing runs.")
        add("--max-works", type=int, help="End, or be replaced, after this many attempts.")
        add("--max-memory", type=int, metavar="MB", help="End, or be replaced, above this much memory.")
        add("--name", default="", help="A name for this worker.")
        add("--no-scheduler", action="store_true", help="Fire no schedules; others do, or ayework_scheduler.")
        add("--reload", action="store_true", help="Start anew when code changes (for development).")
        add("--check", action="store_true", help="Check the configuration, count connections, start nothing.")
        add("--health-port", type=int, metavar="PORT", help="Answer /live and /ready over HTTP on this port.")
        add("--health-host", metavar="HOST", help="Where to do so. Default: 127.0.0.1.")
        add("--metrics-port", type=int, metavar="PORT", help="Serve /metrics for Prometheus on this port.")
        add("--metrics-host", metavar="HOST", help="Where to do so. Default: 127.0.0.1.")

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run; a signal that comes before the worker listens stops it in order as soon as it does."""
        with nullcontext() if options["check"] or options["reload"] else signals_held_back():
            return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        """Read the options, then check, supervise or run a worker."""
        registry.load()
        chosen = worker_options(options)
        if options["metrics_port"] is not None:
            require_exporter()
        if options["check"]:
            return self.end(check_worker(chosen, self.say))
        show_engine_log(options["verbosity"])
        if options["reload"] and not is_reloaded():
            return self.end(start_again_and_again())
        if self.is_whole_process:
            freeze_loaded_objects()
            shorten_switch_interval()
        host, port = options["metrics_host"] or LOOPBACK, options["metrics_port"]
        if (supervised := inherited()) is not None:
            end, number, port = supervised
            return self.end(self.be_child(chosen, (host, port), end, number))
        server = self.health_server(options["health_host"] or LOOPBACK, options["health_port"])
        metrics = None if port is None else metrics_server(host, port)
        if metrics is not None:
            self.say(f"Metrics are served at {metrics.url}{PATH}.")
        if chosen.processes > 1:
            return self.end(self.supervise(chosen, server, metrics))
        self.end(self.work(chosen, server, metrics, options["reload"]))

    def work(
        self, chosen: WorkerOptions, server: HealthServer | None, metrics: MetricsServer | None, reloads: bool
    ) -> int:
        """Run one worker in this process."""
        self.stay_on_one_cpu(chosen, os.getpid())
        worker = chosen.worker()
        self.greet(worker)
        if server is not None:
            server.report = worker.health.report
            server.serve_in_thread()
        if metrics is not None:
            metrics.serve_in_thread()
        status = 0
        with log_named(worker.name):
            if reloads:
                serve_until_changed(worker)
            else:
                status = serve(worker)
        if worker.refusal is not None:
            raise worker.refusal
        return status

    def supervise(
        self, chosen: WorkerOptions, server: HealthServer | None, metrics: MetricsServer | None
    ) -> int:
        """Keep several worker processes alive, and one that serves metrics if asked to."""
        self.say(f"Supervisor of {chosen.processes} processes. Stop with Ctrl-C.")
        if metrics is not None:
            metrics.close()  # the child listens; by now it is known that it can

        def main(end: socket.socket, number: int) -> int:
            return self.be_child(chosen, metrics.address if metrics else None, end, number)

        with log_named(chosen.name), nullcontext() if metrics is None else metrics.exporter.shared():
            return Supervisor(chosen.processes, main, server, metrics.address[1] if metrics else 0).run()

    def be_child(
        self, chosen: WorkerOptions, metrics: tuple[str, int] | None, end: socket.socket, number: int
    ) -> int:
        """Be a child of a supervisor: one of several workers, or the one that serves metrics."""
        if number == EXPORTER and metrics is not None:
            return export(end, metrics_server(*metrics))
        self.stay_on_one_cpu(chosen, os.getppid() + number)
        worker = chosen.worker(number)
        self.greet(worker)
        link = SupervisorLink(end, worker)
        with log_named(worker.name):
            status = serve(worker, second_ends=lambda: not link.holds)
        if worker.refusal is not None:
            with suppress(OSError):
                self.stderr.write(f"CommandError: {text_with_notes(worker.refusal)}")
            return REFUSED
        return status

    def stay_on_one_cpu(self, chosen: WorkerOptions, number: int) -> None:
        """Keep this process on one CPU, if that was asked for and the process does nothing else."""
        if chosen.one_cpu and self.is_whole_process:
            self.say(f"This process runs on CPU {use_one_cpu(number)} alone.")

    def health_server(self, host: str, port: int | None) -> HealthServer | None:
        """Listen on the port of the health checks, if one is given."""
        if port is None:
            return None
        server = listening(HealthServer, host, port, "--health-port")
        self.say(f"Health is served at {server.url}/live and {server.url}/ready.")
        return server

    def greet(self, worker: Worker) -> None:
        """Print the worker and hints on its queues."""
        self.say(
            f"Worker {worker.id}: {worker.concurrency} at a time, "
            f"{', '.join(worker.queues) or 'all queues'}, {counted(len(registry.names()), 'type')} of work. "
            "Stop with Ctrl-C."
        )
        for hint in hints_on_queues(worker.queues):
            self.say(self.style.WARNING(hint))

    def say(self, text: str, ending: str | None = None) -> None:
        """Print at once; a worker also runs where that fails, as on a full disk."""
        with suppress(OSError):
            super().say(text, ending)

    def end(self, status: int) -> None:
        """End with a status; on the command line at once, even if handlers have left threads behind."""
        if self.is_whole_process:
            exit_in_time(status)
        if status:
            sys.exit(status)


def listening(make: Callable[[str, int], Server], host: str, port: int, option: str) -> Server:
    """Make a server; raise CommandError when it cannot listen at its address."""
    try:
        return make(host, port)
    except (OSError, OverflowError) as error:
        why = str(error).rstrip(".")
        raise refused("cannot-listen", f"cannot listen on {host}:{port} for {option}: {why}.") from None


def metrics_server(host: str, port: int) -> MetricsServer:
    """Listen on the port of the metrics; raise CommandError when that is not possible."""
    exporter = require_exporter()
    return listening(lambda host, port: MetricsServer(host, port, exporter), host, port, "--metrics-port")


def require_exporter() -> MetricsExporter:
    """Return what makes the page of metrics; raise CommandError when no app does."""
    if providers.exporter is None:
        raise refused(
            "metrics-app-missing",
            "expected 'django_ayework.contrib.prometheus' in INSTALLED_APPS for --metrics-port; add it, "
            'and run pip install "django-ayework[metrics]".',
        )
    return providers.exporter


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
    one_cpu: bool
    burst: bool
    max_works: int | None
    max_memory: int | None
    scheduler: bool

    def worker(self, place: int | None = None) -> Worker:
        """Build the worker, or the worker at a place among several."""
        options = asdict(self)
        del options["processes"], options["one_cpu"]
        if place is not None and self.name:
            options["name"] = f"{self.name}-{place}"
        return Worker(**options)


def worker_options(given: Mapping[str, Any]) -> WorkerOptions:
    """Return the options; raise CommandError for values that cannot be used."""
    for option in NUMBERS:
        if given[option] is not None and given[option] < 1:
            raise refused("number", f"expected {flag(option)} to be 1 or more, got: {given[option]}.")
    if given["processes"] > MOST_PROCESSES:
        raise refused(
            "number", f"expected --processes to be at most {MOST_PROCESSES}, got: {given['processes']}."
        )
    if given["processes"] > 1 and not hasattr(os, "posix_spawn"):
        raise refused(
            "one-process",
            "expected --processes to be 1 on this system, which has no fork, "
            f"got: {given['processes']}; start more workers instead.",
        )
    for server in ("health", "metrics"):
        if given[f"{server}_host"] is not None and given[f"{server}_port"] is None:
            raise refused(
                "cannot-listen", f"expected --{server}-port with --{server}-host, got the host alone."
            )
    others = [flag(option) for option in NOT_RELOADED if given[option]]
    others += ["--processes"] if given["processes"] > 1 else []
    if given["reload"] and others:
        raise refused(
            "reload-alone", f"expected --reload without {', '.join(others)}: it is for development."
        )
    if given["one_cpu"] and not hasattr(os, "sched_setaffinity"):
        raise refused(
            "one-cpu", "expected --one-cpu on Linux only: this system cannot keep a process on one CPU."
        )
    require_short(given["name"], given["processes"])
    types, excluded = known_types(given, "types"), known_types(given, "exclude_types")
    if types and not set(types) - set(excluded):
        raise refused(
            "types-all-excluded", "expected --exclude-types to leave some of --types, got the same ones."
        )
    same = ("processes", "name", "one_cpu", "burst", "max_works", "max_memory")
    return WorkerOptions(
        queues=listed(given, "queues"),
        types=types,
        exclude_types=excluded,
        concurrency=given["concurrency"] or get_settings().concurrency,
        scheduler=not given["no_scheduler"],
        **{option: given[option] for option in same},
    )


def require_short(name: str, processes: int) -> None:
    """Raise CommandError if a name with the number of its process does not fit its column."""
    longest = LONGEST_NAME - (len(f"-{processes}") if processes > 1 else 0)
    if len(name) > longest:
        raise refused(
            "name-too-long", f"expected --name to have at most {longest} characters, got: {len(name)}."
        )


def known_types(given: Mapping[str, Any], option: str) -> tuple[str, ...]:
    """Return listed types of work; raise CommandError, suggesting the nearest, when one is unknown."""
    types = listed(given, option)
    try:
        for type in types:
            registry.get(type)
    except UnknownWorkType as unknown:
        raise refused_as(CommandError, unknown) from None
    return types


def check_worker(chosen: WorkerOptions, say: Callable[[str], None]) -> int:
    """Print the connections that these options take, and all findings; return 1 for a problem, else 0."""
    budget = Budget(
        concurrency=chosen.concurrency,
        processes=chosen.processes,
        replaced=bool(chosen.max_works or chosen.max_memory),
        scheduler=chosen.scheduler and not chosen.burst,
        unhandled_groups=get_settings().unhandled_group is not None,
        wakeups=connections_of(get_pubsub()),
    )
    say("\n".join(budget_lines(budget)))
    say("Configuration:")
    found = list(findings(chosen.queues, chosen.types, budget))
    found += system_checks() if worst(found) is not Level.PROBLEM else []
    for finding in found:
        word = WORDS.get(finding.level, finding.level.value)
        say(f"  {word:<8} {finding.text} {finding.remedy}".rstrip())
    return int(worst(found) is Level.PROBLEM)


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
