"""Keeping the result of an inspection."""

from __future__ import annotations

from pathlib import Path

from django.db import transaction

from example_project.audit.inspection.distribution import Inspection
from example_project.audit.models import Finding, Package


@transaction.atomic
def keep_package(audit_id: int, location: Path, inspection: Inspection) -> Package:
    """Write the row of a distribution and its findings, in place of those of an earlier try.

    Works are delivered at least once: an inspection that runs a second time must leave one row.
    """
    package, _ = Package.objects.update_or_create(
        audit_id=audit_id,
        location=str(location),
        defaults={
            "name": inspection.description.name,
            "version": inspection.description.version,
            "licence": inspection.description.licence,
            "has_record": inspection.has_record,
            "files": inspection.files,
            "size": inspection.size,
            "lines": inspection.lines,
            "problems": len(inspection.problems),
        },
    )
    package.findings.all().delete()
    findings = [
        Finding(package=package, path=found.path, kind=found.kind.value, detail=found.detail)
        for found in inspection.problems
    ]
    Finding.objects.bulk_create(findings, batch_size=500)
    return package
