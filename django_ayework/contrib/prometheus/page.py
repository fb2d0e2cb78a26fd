"""The page of metrics: the series of this process, or of all that share a folder, and the gauges."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager

from django.core.exceptions import ImproperlyConfigured

from django_ayework.documentation import documented
from django_ayework.flow.events import announce_starts
from django_ayework.worker.http import Response

#: By this variable ``prometheus_client`` learns the folder to which the processes write that share one page.
FOLDER = "PROMETHEUS_MULTIPROC_DIR"


class Exporter:
    """Makes pages for workers and for views."""

    def __init__(self) -> None:
        #: The folder that this process has made for its children; empty for none.
        self._own_folder = ""

    def page(self) -> Response:
        """Return the page in Prometheus' text format."""
        from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        from django_ayework.contrib.prometheus import ended
        from django_ayework.contrib.prometheus.fleet import FleetCollector

        announce_starts()
        fleet = CollectorRegistry()
        fleet.register(FleetCollector())
        gauges = generate_latest(fleet)  # first: it counts its errors
        registry = REGISTRY
        if FOLDER in os.environ:
            if os.environ[FOLDER] == self._own_folder:
                ended.merge(self._own_folder)
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return Response(200, CONTENT_TYPE_LATEST, generate_latest(registry) + gauges)

    @contextmanager
    def shared(self) -> Generator[None]:
        """Let processes that are started in this block write to one folder; the project may have named one.

        Raises ImproperlyConfigured when ``prometheus_client`` was imported before.
        """
        if FOLDER in os.environ:
            yield
            return
        if "prometheus_client" in sys.modules:
            raise documented(
                ImproperlyConfigured(
                    "expected prometheus_client not to be imported before the processes start, but the "
                    "project imports it with its apps; set the environment variable "
                    f"{FOLDER} to an empty folder."
                ),
                "prometheus-imported-too-early",
            )
        with tempfile.TemporaryDirectory(prefix="ayework-metrics-") as folder:
            self._own_folder = os.environ[FOLDER] = folder
            try:
                yield
            finally:
                self._own_folder = ""
                del os.environ[FOLDER]


exporter = Exporter()
