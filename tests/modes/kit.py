"""How tests run a handler of their own."""

from __future__ import annotations

from django_ayework import Retry, enqueue, work
from django_ayework.testing import drain

ONCE = Retry(attempts=1)


def run(handler, **options):
    """Declare a handler, queue it, run it; return its state."""
    handle = enqueue(work(name="modes.case", retry=ONCE, **options)(handler)())
    drain(raises=False)
    return handle.state()
