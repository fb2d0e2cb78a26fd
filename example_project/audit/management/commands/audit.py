"""``manage.py audit``: the same audit as on the page, watched from the terminal."""

from __future__ import annotations

import time
from argparse import ArgumentParser, BooleanOptionalAction
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.urls import NoReverseMatch, reverse

from django_ayework import Worker
from example_project.audit.models import Audit
from example_project.audit.progress import Phase, Progress, progress_of
from example_project.audit.start import start_audit
from example_project.audit.terminal import ProgressBar, report_lines

GLANCE = 0.2  # seconds between two looks at the database
NO_WORKER = "No worker has picked this up yet: run `python manage.py ayework_worker`"


class Command(BaseCommand):
    """Audits the installed packages and prints the report."""

    help = "Audit the Python packages installed beside this project, one work per package."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--wait",
            action=BooleanOptionalAction,
            default=True,
            help="watch it and print the report (default)",
        )
        parser.add_argument(
            "--timeout", type=float, default=300.0, metavar="SECONDS", help="how long to watch (default 300)"
        )
        parser.add_argument("--with-worker", action="store_true", help="run a worker inside this command")
        parser.add_argument(
            "--concurrency", type=int, default=4, metavar="N", help="slots of that worker (default 4)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Start an audit; unless told not to, follow it to its report."""
        audit = start_audit()
        self.stdout.write(f"{audit} is queued; page: {audit.get_absolute_url()}")
        self.stdout.write(f"Its progress, for everybody who has the address: {audit.get_progress_url()}")
        if not options["wait"]:
            return
        worker: AbstractContextManager[object] = nullcontext()
        if options["with_worker"]:
            worker = Worker(concurrency=options["concurrency"])
        with worker:
            progress = self.follow(audit, options["timeout"])
        self.conclude(audit, progress, options["timeout"])

    def follow(self, audit: Audit, timeout: float) -> Progress:
        """Draw the progress until the audit has ended or ``timeout`` seconds have passed."""
        deadline = time.monotonic() + timeout
        bar = ProgressBar(self.draw, live=self.stdout.isatty())
        hinted = False
        try:
            while not (progress := progress_of(audit)).ended and time.monotonic() < deadline:
                bar.show(progress)
                if progress.lonely and not hinted:
                    hinted = True
                    bar.close()
                    self.stderr.write(self.style.WARNING(NO_WORKER))
                time.sleep(GLANCE)
                audit.refresh_from_db()
            bar.show(progress)
        except KeyboardInterrupt:
            raise CommandError(
                "Stopped watching; the workers carry on with the audit.", returncode=130
            ) from None
        finally:
            bar.close()
        return progress

    def draw(self, text: str) -> None:
        """Write to the terminal at once, and without the line end that a command adds to what it writes."""
        self.stdout.write(text, ending="")
        self.stdout.flush()

    def conclude(self, audit: Audit, progress: Progress, timeout: float) -> None:
        """Print the report, or fail with what went wrong."""
        if audit.report is not None:
            self.stdout.write("\n".join(["", *report_lines(audit.report), "", ""]))
            self.stdout.write(f"Took:  {audit.seconds:.1f} s")
        self.stdout.write(f"Page:  {audit.get_absolute_url()}")
        self.stdout.write(f"Admin: {work_admin_path(audit)}")
        if progress.phase is Phase.FAILED:
            raise CommandError(f"{audit} failed: {progress.problem}")
        if progress.phase is Phase.WAITING:
            raise CommandError(
                f"No worker answered within {timeout:g} s: run `python manage.py ayework_worker`."
            )
        if progress.phase is not Phase.FINISHED:
            raise CommandError(f"{audit} did not finish within {timeout:g} s; the workers carry on with it.")


def work_admin_path(audit: Audit) -> str:
    """Return the address of the root work in the admin."""
    try:
        return reverse("admin:django_ayework_work_change", args=[audit.work_id])
    except NoReverseMatch:
        return "(not installed)"
