"""Reading pages of metrics."""

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from django_ayework.contrib.prometheus.page import exporter
from django_ayework.flow.events import announce_starts

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples_of(text: str) -> Samples:
    """Return the values of a page by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def page() -> Samples:
    """Return what the page shows at this moment."""
    return samples_of(exporter.page().body.decode())


def value(samples: Samples, name: str, **labels: str) -> float:
    """Return the sum of the samples with this name and these labels, among others; without ``ayework_``."""
    wanted = set(labels.items())
    return sum(
        number for (found, of), number in samples.items() if found == f"ayework_{name}" and wanted <= of
    )


def counters() -> Samples:
    """Return what this process has counted, without the gauges, which ask the database."""
    announce_starts()
    families = REGISTRY.collect()
    return {
        (each.name, frozenset(each.labels.items())): each.value for one in families for each in one.samples
    }


class Counted:
    """What the counters have gained since this was made; names go without ``ayework_`` and ``_total``."""

    def __init__(self) -> None:
        self._before = counters()

    def __call__(self, name: str, **labels: str) -> float:
        name += "" if name.endswith(("_count", "_sum")) else "_total"
        return value(counters(), name, **labels) - value(self._before, name, **labels)
