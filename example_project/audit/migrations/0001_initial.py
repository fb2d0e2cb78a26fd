# ruff: noqa: RUF012
"""The tables of the audit."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Audit",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("work_id", models.CharField(blank=True, help_text="The root work.", max_length=64)),
                (
                    "report_work_id",
                    models.CharField(blank=True, help_text="The work that joins the others.", max_length=64),
                ),
                (
                    "expected",
                    models.PositiveIntegerField(blank=True, help_text="Distributions to inspect.", null=True),
                ),
                ("report", models.JSONField(blank=True, help_text="See report.Report.", null=True)),
            ],
            options={
                "ordering": ("-pk",),
            },
        ),
        migrations.CreateModel(
            name="Package",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("location", models.CharField(max_length=500)),
                ("name", models.CharField(max_length=200)),
                ("version", models.CharField(blank=True, max_length=100)),
                ("licence", models.CharField(blank=True, max_length=200)),
                ("has_record", models.BooleanField(default=True)),
                ("files", models.PositiveIntegerField(default=0)),
                ("size", models.PositiveBigIntegerField(default=0, help_text="Bytes of all recorded files.")),
                ("lines", models.PositiveIntegerField(default=0, help_text="Lines of code.")),
                ("problems", models.PositiveIntegerField(default=0)),
                (
                    "audit",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="packages", to="audit.audit"
                    ),
                ),
            ],
            options={
                "ordering": ("name", "version", "pk"),
            },
        ),
        migrations.CreateModel(
            name="Finding",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("path", models.CharField(max_length=500)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("missing", "missing"),
                            ("changed size", "changed size"),
                            ("changed hash", "changed hash"),
                            ("no record", "no record"),
                            ("unreadable", "unreadable"),
                        ],
                        max_length=20,
                    ),
                ),
                ("detail", models.CharField(blank=True, max_length=500)),
                (
                    "package",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="findings",
                        to="audit.package",
                    ),
                ),
            ],
            options={
                "ordering": ("path", "pk"),
            },
        ),
        migrations.AddConstraint(
            model_name="package",
            constraint=models.UniqueConstraint(
                fields=("audit", "location"), name="audit_package_once_per_audit"
            ),
        ),
    ]
