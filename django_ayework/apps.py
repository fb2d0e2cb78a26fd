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
        autodiscover_modules("works")
