"""``ayework_worker``: run works until told to stop."""

from __future__ import annotations

import socket
import sys
from contextlib import nullcontext
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_ayework.define.registry import registry
from django_ayework.flow.readiness import hints_on_queues
from django_ayework.management.base import DatabaseCommand, log_named, show_engine_log
from django_ayework.management.worker_options import (
    WorkerOptions,
    add_worker_options,
    check_worker,
    worker_options,
)
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
            leave_out_what_is_loaded()
            take_turns_quickly()
        if (new_work := inherited()) is not None:
            return self.end(self.live(chosen, *new_work))
        server = self.health_server(options["health_host"], options["health_port"])
        if chosen.processes > 1:
            return self.end(self.supervise(chosen, server))
        self.end(self.work(chosen, server, options["reload"]))

    def work(self, chosen: WorkerOptions, server: HealthServer | None, reloads: bool) -> int:
        """Be the one worker there is."""
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
        """Keep several workers alive."""
        self.stdout.write(f"Supervisor of {chosen.processes} processes. Stop with Ctrl-C.")

        def life(end: socket.socket, place: int) -> int:
            return self.live(chosen, end, place)

        with log_named(chosen.name):
            return Supervisor(chosen.processes, life, server).run()

    def live(self, chosen: WorkerOptions, end: socket.socket, place: int) -> int:
        """Be one of several workers."""
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
