"""``ayework_worker``: run works until told to stop."""

from __future__ import annotations

import logging
import os
import signal
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_ayework.define.registry import registry
from django_ayework.worker.worker import Worker


class Command(BaseCommand):
    """Run works until SIGTERM or SIGINT; a second signal ends the process at once."""

    help = "Run works until stopped. SIGTERM lets running works finish; a second signal ends at once."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the worker's options."""
        parser.add_argument("--queues", default="", help="Only these queues, comma separated. Default: all.")
        parser.add_argument(
            "--concurrency", type=int, help='Works at a time. Default: AYEWORK["CONCURRENCY"].'
        )
        parser.add_argument("--burst", action="store_true", help="Stop once nothing is due and nothing runs.")
        parser.add_argument("--max-works", type=int, help="Stop after this many attempts.")
        parser.add_argument("--name", default="", help="A name to tell this worker by.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Build the worker, connect the signals, run."""
        for option in ("concurrency", "max_works"):
            if options[option] is not None and options[option] < 1:
                raise CommandError(
                    f"expected --{option.replace('_', '-')} to be 1 or more, got: {options[option]}."
                )
        show_engine_log(options["verbosity"])
        worker = Worker(
            queues=[queue.strip() for queue in options["queues"].split(",") if queue.strip()],
            concurrency=options["concurrency"],
            name=options["name"],
            burst=options["burst"],
            max_works=options["max_works"],
        )
        self.stdout.write(
            f"Worker {worker.id}: {worker.concurrency} at a time, "
            f"{', '.join(worker.queues) or 'all queues'}, {len(registry.names())} types of work. "
            "Stop with Ctrl-C."
        )
        stop_on_signals(worker)
        worker.run()


def show_engine_log(verbosity: int) -> None:
    """Show the engine's log on the terminal unless the project has configured logging for it."""
    logger = logging.getLogger("django_ayework")
    if not logger.hasHandlers():
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    if logger.level == logging.NOTSET and verbosity > 0:
        logger.setLevel(logging.INFO)


def stop_on_signals(worker: Worker) -> None:
    """Stop the worker on the first signal, the process on the second."""

    def stop(number: int, frame: FrameType | None) -> None:
        if worker.is_stopping:
            os._exit(128 + number)
        worker.request_stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
