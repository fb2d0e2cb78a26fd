"""Works that cost nothing, so that what is measured is the engine."""

from __future__ import annotations

from django_ayework import work


@work(name="bench.noop")
def noop(number: int) -> int:
    """Return the input."""
    return number
