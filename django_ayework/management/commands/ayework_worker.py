"""``ayework_worker``: run works until told to stop."""

from __future__ import annotations

import socket
import sys
from contextlib import nullcontext
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_ayework.compat import is_reloaded
from django_ayework.define.registry import registry
from django_ayework.flow.readiness import hints_on_queues
from django_ayework.management.base import DatabaseCommand, log_named, show_engine_log
from django_ayework.management.worker_options import (
    WorkerOptions,
    add_worker_options,
    check_worker,
    worker_options,
)
from django_ayework.worker.child import SupervisorLink, inherited
from django_ayework.worker.health import HealthServer
from django_ayework.worker.process import (
    REFUSED,
    exit_in_time,
    freeze_loaded_objects,
    serve,
    serve_until_changed,
    shorten_switch_interval,
    signals_held_back,
    start_again_and_again,
)
from django_ayework.worker.supervisor import Supervisor
from django_ayework.worker.worker import Worker


class Command(DatabaseCommand):
    """Run works until SIGTERM or SIGINT; a later second signal ends the process at once."""

    help = "Run works until stopped. SIGTERM lets running works finish; a second signal ends at once."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the worker's options."""
        add_worker_options(parser)

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run; a signal that comes before the worker hears any stops it in order as soon as it does."""
        with nullcontext() if options["check"] or options["reload"] else signals_held_back():
            return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        """Read the options, then check, supervise or work."""
        chosen = worker_options(options)
        if options["check"]:
            return self.end(check_worker(chosen, self.stdout))
        show_engine_log(options["verbosity"])
        if options["reload"] and not is_reloaded():
            return self.end(start_again_and_again())
        if self.is_whole_process:
            freeze_loaded_objects()
            shorten_switch_interval()
        if (supervised := inherited()) is not None:
            return self.end(self.work_supervised(chosen, *supervised))
        server = self.health_server(options["health_host"], options["health_port"])
        if chosen.processes > 1:
            return self.end(self.supervise(chosen, server))
        self.end(self.work(chosen, server, options["reload"]))

    def work(self, chosen: WorkerOptions, server: HealthServer | None, reloads: bool) -> int:
        """Be the one worker there is."""
        worker = chosen.worker()
        self.greet(worker)
        if server is not None:
            server.report = worker.health.report
            server.serve_in_thread()
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
        """Keep several workers alive."""
        self.stdout.write(f"Supervisor of {chosen.processes} processes. Stop with Ctrl-C.")

        def main(end: socket.socket, number: int) -> int:
            return self.work_supervised(chosen, end, number)

        with log_named(chosen.name):
            return Supervisor(chosen.processes, main, server).run()

    def work_supervised(self, chosen: WorkerOptions, end: socket.socket, number: int) -> int:
        """Be one of several workers."""
        worker = chosen.worker(number)
        self.greet(worker)
        link = SupervisorLink(end, worker)
        with log_named(worker.name):
            status = serve(worker, second_ends=lambda: not link.holds)
        if worker.refusal is not None:
            self.stderr.write(f"CommandError: {worker.refusal}")
            return REFUSED
        return status

    def health_server(self, host: str, port: int | None) -> HealthServer | None:
        """Listen where health is asked for, if anywhere."""
        if port is None:
            return None
        try:
            server = HealthServer(host, port)
        except (OSError, OverflowError) as error:
            raise CommandError(f"cannot listen on {host}:{port} for --health-port: {error}.") from None
        self.stdout.write(f"Health is told at {server.url}/live and {server.url}/ready.")
        return server

    def greet(self, worker: Worker) -> None:
        """Say who works here."""
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
        """End with a status; on the command line that comes soon, whatever handlers have left behind."""
        if self.is_whole_process:
            exit_in_time(status)
        if status:
            sys.exit(status)
