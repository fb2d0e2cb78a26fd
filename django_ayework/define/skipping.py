"""What a type that skips the queue cannot be."""

from __future__ import annotations

from django_ayework.define.work_type import WorkSettings
from django_ayework.errors import ImproperWork


def require_queue_if_continuous(name: str, settings: WorkSettings) -> None:
    """Raise when a type skips the queue whose works the engine queues by itself: workers do that anyway."""
    if settings.interval is not None and settings.skip_queue:
        raise ImproperWork(
            f"expected interval= or skip_queue=True, got both for {name!r}: works of a continuous type are "
            "queued by workers, which start them at once; leave skip_queue out."
        )
