"""``ayework_scheduler``: fire schedules, and nothing else."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Any

from django.core.management.base import CommandParser
from django.db import Error

from django_ayework.define.schedules import schedules
from django_ayework.flow.scheduler import ALL, fire_due
from django_ayework.flow.schedules import sync
from django_ayework.flow.startup_checks import require_usable_database
from django_ayework.management.base import JSONCommand, show_engine_log
from django_ayework.worker.maintenance import Scheduler
from django_ayework.worker.process import WakePipe, stop_signals
from django_ayework.worker.skip_queue import intake


class Command(JSONCommand):
    """Fire schedules until SIGTERM, SIGINT or SIGHUP; a second signal ends the process at once."""

    help = "Fire schedules until stopped. Workers do so by themselves, unless started with --no-scheduler."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add ``--once``."""
        super().add_arguments(parser)
        parser.add_argument("--once", action="store_true", help="Fire all due schedules, and end.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Fire once, or until stopped."""
        show_engine_log(options["verbosity"])
        if self.is_whole_process:
            intake.close()  # functions of schedules may enqueue works that skip the queue
        if options["once"]:
            sync()
            fired = fire_due(limit=ALL).fired
            return self.answer({"fired": fired}, f"Fired {fired} schedules.", options)
        names = schedules.names()
        text = f"Scheduler of {len(names)} schedules in code, and those of the admin. Stop with Ctrl-C."
        with suppress(OSError):  # a scheduler, as a worker, also runs where nothing can be printed
            self.answer({"schedules": names}, text, options)
        with suppress(Error):  # the scheduler waits for a database that is away
            require_usable_database()
        self.serve(Scheduler())

    def serve(self, scheduler: Scheduler) -> None:
        """Wait for a signal; the scheduler runs in a thread, as a worker does."""
        with closing(WakePipe()) as pipe:
            pipe.wake_on_signals()
            received = stop_signals()
            scheduler.start()
            while not received:
                pipe.wait()
            scheduler.stop()
