"""The works of an audit: one root, one per distribution, and one that joins them."""

from __future__ import annotations

from pathlib import Path

from django.utils import timezone

from django_ayework import Context, Instruction, work
from example_project.audit.inspection.distribution import inspect, installed_locations
from example_project.audit.inspection.metadata import name_and_version
from example_project.audit.models import Audit
from example_project.audit.packages import keep_package
from example_project.audit.report import build_report

FILES_PER_NOTE = 250


@work
def audit_installation(ctx: Context, audit_id: int) -> Instruction[None, dict[str, int]]:
    """Fan out one inspection per installed distribution; the report follows when all have ended.

    ``all-done``, not ``all-success``: a package whose inspection died is a line in the report.
    """
    inspections = [
        inspect_distribution(audit_id=audit_id, location=str(path), name=name_and_version(path)[0])
        for path in installed_locations()
    ]
    report = write_report(audit_id=audit_id)
    # A repeated attempt builds new works and writes their new id here; only what it returns then is queued.
    Audit.objects.filter(pk=audit_id).update(expected=len(inspections), report_work_id=report.id)
    return ctx.queue(inspections).next([report], condition="all-done")


@work(timeout=120)
def inspect_distribution(ctx: Context, audit_id: int, location: str, name: str) -> None:
    """Verify one distribution and keep what was found; ``name`` is there for whoever reads the input."""

    def note(done: int, total: int) -> None:
        if done % FILES_PER_NOTE == 0:
            ctx.signal.raise_if_aborted()
            ctx.progress(done, total, note=name)

    path = Path(location)
    keep_package(audit_id, path, inspect(path, on_file=note))


@work
def write_report(ctx: Context, audit_id: int) -> Instruction[dict[str, int], dict[str, int]]:
    """Write the report; its totals become the value of the whole group."""
    audit = Audit.objects.get(pk=audit_id)
    audit.report = report = build_report(audit)
    audit.finished_at = timezone.now()
    audit.save(update_fields=["report", "finished_at"])
    return ctx.result(report["totals"])
