"""A real worker beside a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django_ayework.worker.worker import Worker


@contextmanager
def running_worker(**options: Any) -> Iterator[Worker]:
    """Run a real worker in a thread of this process, for a ``TransactionTestCase``; options are Worker's.

    Example::

        with running_worker(concurrency=2):
            assert enqueue(add(a=1, b=2)).result(timeout=5) == 3
    """
    with Worker(**options) as worker:
        yield worker
