"""What an audit keeps: itself, a row per inspected distribution, a row per finding."""

from __future__ import annotations

from django.db import models
from django.urls import reverse

from example_project.audit.inspection.findings import Kind


class Audit(models.Model):
    """One run over everything that is installed."""

    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    work_id = models.CharField(max_length=64, blank=True, help_text="The root work.")
    report_work_id = models.CharField(max_length=64, blank=True, help_text="The work that joins the others.")
    expected = models.PositiveIntegerField(null=True, blank=True, help_text="Distributions to inspect.")
    report = models.JSONField(null=True, blank=True, help_text="See report.Report.")

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"Audit {self.pk}"

    def get_absolute_url(self) -> str:
        """Return the address of the page of this audit."""
        return reverse("audit:detail", args=[self.pk])

    def get_progress_url(self) -> str:
        """Return the address at which everybody who has it sees how far the works of this audit are."""
        from django_ayework.progress import progress_url  # models are loaded before apps are ready

        return progress_url(self.work_id, group=True, title=str(self), result_url=self.get_absolute_url())

    @property
    def seconds(self) -> float | None:
        """Return how long it took from the click to the report, None while it runs."""
        return (self.finished_at - self.created_at).total_seconds() if self.finished_at else None


class Package(models.Model):
    """One installed distribution as it was found; its metadata directory identifies it."""

    audit = models.ForeignKey(Audit, on_delete=models.CASCADE, related_name="packages")
    location = models.CharField(max_length=500)
    name = models.CharField(max_length=200)
    version = models.CharField(max_length=100, blank=True)
    licence = models.CharField(max_length=200, blank=True)
    has_record = models.BooleanField(default=True)
    files = models.PositiveIntegerField(default=0)
    size = models.PositiveBigIntegerField(default=0, help_text="Bytes of all recorded files.")
    lines = models.PositiveIntegerField(default=0, help_text="Lines of code.")
    problems = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ("name", "version", "pk")
        constraints = (
            models.UniqueConstraint(fields=("audit", "location"), name="audit_package_once_per_audit"),
        )

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


class Finding(models.Model):
    """Something about an installed file that is not as its RECORD says."""

    package = models.ForeignKey(Package, on_delete=models.CASCADE, related_name="findings")
    path = models.CharField(max_length=500)
    kind = models.CharField(max_length=20, choices=[(kind.value, kind.value) for kind in Kind])
    detail = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ("path", "pk")

    def __str__(self) -> str:
        return f"{self.path}: {self.kind}"
