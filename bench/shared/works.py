"""The job of the shared harness, as a work."""

from __future__ import annotations

import common

from django_ayework import work


@work(name="bench.shared_hit")
def hit(number: int) -> int:
    """Be the job."""
    common.hit(number)
    return number
