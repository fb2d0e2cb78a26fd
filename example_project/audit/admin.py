"""Audits in the admin, to be read."""

from __future__ import annotations

from django.contrib import admin

from django_ayework.admin.panel import WorkPanel
from example_project.audit.models import Audit, Finding, Package


@admin.register(Audit)
class AuditAdmin(WorkPanel, admin.ModelAdmin):  # type: ignore[type-arg]
    """The runs, each with the works about it."""

    list_display = ("__str__", "created_at", "finished_at", "expected")
    readonly_fields = ("created_at", "finished_at", "work_id", "report_work_id", "expected", "report")


@admin.register(Package)
class PackageAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The distributions of all runs."""

    list_display = ("name", "version", "licence", "files", "size", "lines", "problems", "audit")
    list_filter = ("has_record", "audit")
    list_select_related = ("audit",)
    search_fields = ("name", "licence")


@admin.register(Finding)
class FindingAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """What is not as recorded."""

    list_display = ("path", "kind", "detail", "package")
    list_filter = ("kind",)
    list_select_related = ("package",)
    search_fields = ("path", "package__name")
