"""The composition root: connects the layers when Django starts."""

from __future__ import annotations

from django.apps import AppConfig, apps
from django.core.exceptions import AppRegistryNotReady
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from django_ayework.define.ids import new_id
from django_ayework.define.seams import connections


def app_label_of(module: str) -> str | None:
    """Return the label of the installed app that a module belongs to, or None."""
    try:
        config = apps.get_containing_app_config(module)
    except AppRegistryNotReady:
        return None
    return config.label if config else None


connections.app_label_of = app_label_of


class AyeworkConfig(AppConfig):
    """The app ``django_ayework``."""

    name = "django_ayework"
    label = "django_ayework"
    verbose_name = _("Background work")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect the layers, then import every ``works.py``, as ``admin.py`` is."""
        from django_ayework import api, checks  # noqa: F401  # importing the checks registers them
        from django_ayework.conf import get_settings

        connections.enqueue = api.enqueue
        connections.aenqueue = api.aenqueue
        new_id.custom = lambda: get_settings().id
        connect_doers()
        connect_intake()
        watch_requests()
        autodiscover_modules("works")


def watch_requests() -> None:
    """Tell of works that are built and never enqueued, in development and in tests."""
    import sys

    from django.conf import settings

    from django_ayework.define.dropped import show_warnings, watch

    if settings.DEBUG or "pytest" in sys.modules or sys.argv[1:2] == ["test"]:
        watch.start()
        show_warnings()


def connect_doers() -> None:
    """Let doers report as workers do, count for the fleet in the Store, and leave no connection behind."""
    from django.db import connections as databases

    from django_ayework.doers import seams
    from django_ayework.flow.backlog import backlog_policy
    from django_ayework.flow.events import report
    from django_ayework.ports.kv import limits
    from django_ayework.store.clock import clock
    from django_ayework.store.threads import tidy_connections

    seams.connections.now = clock.now
    seams.connections.report = report
    seams.connections.tidy = tidy_connections
    seams.connections.leave = databases.close_all
    seams.connections.backlog_policy = backlog_policy
    seams.connections.fleet_hit = limits.hit
    seams.connections.fleet_peek = limits.peek


def connect_intake() -> None:
    """Let works skip the queue; a process in which none does need not know how."""
    from collections.abc import Sequence

    from django_ayework.flow import direct
    from django_ayework.store.rows import WorkRow

    def offer(works: Sequence[WorkRow]) -> None:
        from django_ayework.worker.direct.intake import intake

        intake.offer(works)

    direct.connections.intake = offer
