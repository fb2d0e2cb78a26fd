"""Three pages and a fragment: the list, the button, an audit, and the part of it that moves."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from example_project.audit.charts import BarChart, bar_chart
from example_project.audit.models import Audit
from example_project.audit.progress import progress_of
from example_project.audit.report import Report
from example_project.audit.start import start_audit
from example_project.audit.terminal import readable_size

LISTED = 20
LATEST = 5


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show the button and the latest audits."""
    return render(request, "audit/index.html", {"audits": Audit.objects.all()[:LISTED]})


@require_POST
def create(request: HttpRequest) -> HttpResponse:
    """Start an audit and go to its page."""
    return redirect(start_audit())


@require_safe
@never_cache
def detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show an audit: its progress, and its report as soon as there is one."""
    return render(request, "audit/detail.html", _context(pk))


@require_safe
@never_cache
def live(request: HttpRequest, pk: int) -> HttpResponse:
    """Return the part of the page that changes; the page asks for it until the audit has ended."""
    return render(request, "audit/live.html", _context(pk))


def _context(pk: int) -> dict[str, Any]:
    audit = get_object_or_404(Audit, pk=pk)
    return {
        "audit": audit,
        "progress": progress_of(audit),
        "latest": audit.packages.order_by("-pk")[:LATEST],
        "chart": _chart(audit.report) if audit.report else None,
    }


def _chart(report: Report) -> BarChart:
    return bar_chart(
        [
            (f"{package['name']} {package['version']}", package["size"], readable_size(package["size"]))
            for package in report["largest"]
        ]
    )
