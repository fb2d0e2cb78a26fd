"""A process that enqueues is the project's: how it collects garbage is left alone."""

import gc
import weakref

import pytest

from django_ayework import enqueue_many
from tests.app.works import add


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.django_db
def test_garbage_made_before_very_many_are_enqueued_stays_young() -> None:
    """What is taken for old is looked at so seldom that a process grows by all of it."""
    requests = [add(a=number, b=0) for number in range(1_000)]
    gc.collect()
    cycle = weakref.ref(Cycle())
    enqueue_many(requests)
    gc.collect(1)
    assert cycle() is None
