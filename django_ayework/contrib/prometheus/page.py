"""The page of metrics: the series of this process, or of all that share a folder, and the gauges."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

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

        from django_ayework.contrib.prometheus.series import FleetCollector

        announce_starts()
        fleet = CollectorRegistry()
        fleet.register(FleetCollector())
        gauges = generate_latest(fleet)  # first: it counts its errors
        registry = REGISTRY
        if FOLDER in os.environ:
            if os.environ[FOLDER] == self._own_folder:
                merge_ended(self._own_folder)
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return Response(200, CONTENT_TYPE_LATEST, generate_latest(registry) + gauges)

    @contextmanager
    def shared(self) -> Generator[None]:
        """Let processes that are started in this block write to one folder; the project may have named one.

        Raises ImproperlyConfigured when ``prometheus_client`` was imported before, or no folder can be made.
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
        with made_folder() as folder:
            self._own_folder = os.environ[FOLDER] = folder
            try:
                yield
            finally:
                self._own_folder = ""
                del os.environ[FOLDER]

    def forget(self, process: int) -> None:
        """Remove the live gauges of a process that has ended, as ``mark_process_dead`` does.

        The supervisor calls this, and does not import ``prometheus_client``.
        """
        if FOLDER in os.environ:
            with suppress(OSError):
                for path in Path(os.environ[FOLDER]).glob(f"gauge_live*_{process}.db"):
                    path.unlink(missing_ok=True)


def made_folder() -> tempfile.TemporaryDirectory[str]:
    """Make the folder that the processes share; raise ImproperlyConfigured where no file can be written."""
    try:
        return tempfile.TemporaryDirectory(prefix="ayework-metrics-")
    except OSError as error:
        raise documented(
            ImproperlyConfigured(
                "expected to make a folder in which the processes count, but it cannot be made: "
                f"{error}. Set TMPDIR to a folder that can be written."
            ),
            "metrics-folder",
        ) from error


exporter = Exporter()


# Files of processes that have ended: ``prometheus_client`` keeps them for good. A supervisor replaces its
# processes, so their number would grow without end. Their counts are kept, their files are not.

#: Kinds of files whose values are added up. Gauges belong to their process.
ADDED_UP = ("counter", "histogram", "summary")
#: What stands for the process in the name of the file of all that have ended.
ENDED = "0"


def merge_ended(folder: str) -> None:
    """Add the counts of processes that have ended to one file of each kind, and remove theirs.

    Nobody else may read the folder at this moment: counts would be missing, or there twice.
    """
    from prometheus_client.multiprocess import mark_process_dead

    by_process: dict[str, list[Path]] = defaultdict(list)
    for path in Path(folder).glob("*.db"):
        by_process[path.stem.rpartition("_")[2]].append(path)
    for process, paths in by_process.items():
        if process != ENDED and not is_alive(int(process)):
            mark_process_dead(int(process), folder)  # type: ignore[no-untyped-call]
            for path in paths:
                kind = path.stem.partition("_")[0]
                if kind in ADDED_UP:
                    if path.stat().st_size:  # it is empty if the process was killed while it made the file
                        add_values(path, Path(folder, f"{kind}_{ENDED}.db"))
                    path.unlink()


def is_alive(process: int) -> bool:
    """Tell whether there is a process with this id."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user, under the id of one of ours
        pass
    return True


def add_values(path: Path, total: Path) -> None:
    """Add the values of a file to those of another one."""
    from prometheus_client.mmap_dict import MmapedDict

    sums = MmapedDict(str(total))  # type: ignore[no-untyped-call]
    try:
        for key, value, *_ in MmapedDict.read_all_values_from_file(str(path)):  # type: ignore[no-untyped-call]
            before, _ = sums.read_value(key)  # type: ignore[no-untyped-call]
            sums.write_value(key, before + value, 0.0)  # type: ignore[no-untyped-call]
    finally:
        sums.close()  # type: ignore[no-untyped-call]
