"""The app that counts for Prometheus."""

from __future__ import annotations

from importlib.util import find_spec

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured

from django_ayework.documentation import documented


class PrometheusConfig(AppConfig):
    """The app ``django_ayework.contrib.prometheus``; it has no tables."""

    name = "django_ayework.contrib.prometheus"
    label = "ayework_prometheus"
    verbose_name = "Metrics for Prometheus"

    def ready(self) -> None:
        """Listen to the engine, and give workers the page. Raises ImproperlyConfigured without the client."""
        from django_ayework.contrib.prometheus import listening, page
        from django_ayework.worker.http import providers

        if find_spec("prometheus_client") is None:
            raise documented(
                ImproperlyConfigured(
                    f"expected prometheus_client for {self.name!r} in INSTALLED_APPS, but it is not "
                    'installed; run pip install "django-ayework[metrics]".'
                ),
                "package-missing",
            )
        listening.connect()
        providers.exporter = page.exporter
