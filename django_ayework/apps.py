"""The composition root: connects the layers when Django starts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.apps import AppConfig, apps
from django.core.exceptions import AppRegistryNotReady, ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules, import_string
from django.utils.translation import gettext_lazy as _

from django_ayework.conf import get_settings
from django_ayework.define.requests import providers, show_warnings, watch


def app_label_of(module: str) -> str | None:
    """Return the label of the installed app that a module belongs to, or None."""
    try:
        config = apps.get_containing_app_config(module)
    except AppRegistryNotReady:
        return None
    return config.label if config else None


providers.app_label_of = app_label_of


class AyeworkConfig(AppConfig):
    """The app ``django_ayework``."""

    name = "django_ayework"
    label = "django_ayework"
    verbose_name = _("Background work")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect the layers, then import every ``works.py``, as ``admin.py`` is."""
        from django_ayework import api, checks  # noqa: F401  # importing the checks registers them

        providers.enqueue = api.enqueue
        providers.aenqueue = api.aenqueue
        providers.id_maker = id_maker
        connect_doers()
        connect_intake()
        watch_requests()
        autodiscover_modules("works")
        connect_tasks()


def id_maker() -> Callable[[], str] | None:
    """Return the function of ``AYEWORK["ID"]``; None if the settings cannot be used.

    Works that are built while Django starts, as those of schedules are, must not end the system checks, which
    report all that is wrong. Nothing can be enqueued with such settings.
    """
    try:
        made: Callable[[], str] | None = get_settings().id
    except ImproperlyConfigured:
        return None
    return made


def watch_requests() -> None:
    """Warn of works that are built and never enqueued, in development and in tests."""
    import sys

    from django.conf import settings

    if settings.DEBUG or "pytest" in sys.modules or sys.argv[1:2] == ["test"]:
        watch.start()
        show_warnings()


def connect_tasks() -> None:
    """Import the backends of Django's tasks: ours registers a system check, and a source of types.

    A backend that cannot be imported is reported when it is used.
    """
    from django.conf import global_settings, settings

    given: Any = getattr(settings, "TASKS", None)
    if given is getattr(global_settings, "TASKS", None):
        return
    for backend in (given or {}).values():
        with suppress(ImportError, KeyError, TypeError):
            import_string(backend["BACKEND"])


def connect_doers() -> None:
    """Let doers report as workers do, count for the fleet in the Store, and leave no connection behind."""

    from django_ayework.doers.base import providers as doing
    from django_ayework.flow.hooks import backlog_policy, report
    from django_ayework.heartbeat import beat
    from django_ayework.ports import kv
    from django_ayework.store.connections import close_all_connections, tidy_connections
    from django_ayework.store.database import clock
    from django_ayework.store.sessions import counting_session

    doing.now = clock.now
    doing.report = report
    doing.tidy_connections = tidy_connections
    doing.close_connections = close_all_connections
    doing.counting = counting_session
    doing.beat = beat
    doing.backlog_policy = backlog_policy
    doing.shared_hit = kv.hit
    doing.shared_peek = kv.peek


def connect_intake() -> None:
    """Let works skip the queue; a process in which none does need not know how."""
    from collections.abc import Sequence

    from django_ayework.flow import enqueue as queueing
    from django_ayework.store.rows import WorkRow

    def offer(works: Sequence[WorkRow]) -> None:
        from django_ayework.worker.skip_queue import intake

        intake.offer(works)

    queueing.providers.intake = offer
