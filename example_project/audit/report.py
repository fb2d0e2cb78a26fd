"""The report: everything an audit found, as plain data that the page and the terminal both show."""

from __future__ import annotations

from typing import TypedDict

from django.db.models import Count, QuerySet, Sum

from example_project.audit.inspection.findings import Kind
from example_project.audit.models import Audit, Finding, Package

LARGEST = 12
BROKEN = 200


class Largest(TypedDict):
    """One of the packages that take most room."""

    name: str
    version: str
    size: int
    lines: int


class Licence(TypedDict):
    """A licence and how many packages state it."""

    name: str
    packages: int


class Broken(TypedDict):
    """A file that is not as recorded."""

    package: str
    path: str
    kind: str
    detail: str


class Report(TypedDict):
    """What ``Audit.report`` holds; ``broken`` is cut to a readable length, ``totals`` counts them all."""

    totals: dict[str, int]
    largest: list[Largest]
    licences: list[Licence]
    broken: list[Broken]
    unrecorded: list[str]


def build_report(audit: Audit) -> Report:
    """Return the report over the packages inspected so far."""
    unrecorded = audit.packages.filter(has_record=False)
    return Report(
        totals=totals(audit),
        largest=[
            Largest(name=package.name, version=package.version, size=package.size, lines=package.lines)
            for package in audit.packages.filter(size__gt=0).order_by("-size", "name")[:LARGEST]
        ],
        licences=licences(audit),
        broken=[_broken(finding) for finding in _broken_files(audit)[:BROKEN]],
        unrecorded=[str(package) for package in unrecorded],
    )


def totals(audit: Audit) -> dict[str, int]:
    """Return the sums over all packages of an audit."""
    sums = audit.packages.aggregate(
        packages=Count("pk"),
        files=Sum("files", default=0),
        size=Sum("size", default=0),
        lines=Sum("lines", default=0),
    )
    return {
        # Some databases sum to Decimal, which JSON does not know.
        **{name: int(value) for name, value in sums.items()},
        "broken": _broken_files(audit).count(),
        "unrecorded": audit.packages.filter(has_record=False).count(),
        "uninspected": max((audit.expected or 0) - int(sums["packages"]), 0),
    }


def licences(audit: Audit) -> list[Licence]:
    """Return the licences, the most frequent first."""
    rows = Package.objects.filter(audit=audit).order_by().values_list("licence").annotate(Count("pk"))
    counted = [Licence(name=name, packages=count) for name, count in rows]
    return sorted(counted, key=lambda licence: (-licence["packages"], licence["name"]))


def _broken_files(audit: Audit) -> QuerySet[Finding]:
    findings = Finding.objects.filter(package__audit=audit).exclude(kind=Kind.NO_RECORD.value)
    return findings.select_related("package").order_by("package__name", "path", "pk")


def _broken(finding: Finding) -> Broken:
    return Broken(package=str(finding.package), path=finding.path, kind=finding.kind, detail=finding.detail)
