"""The audit app."""

from __future__ import annotations

from django.apps import AppConfig


class AuditConfig(AppConfig):
    """Audits the Python packages installed beside the project."""

    name = "example_project.audit"
    label = "audit"
    verbose_name = "Package audit"
    default_auto_field = "django.db.models.BigAutoField"
