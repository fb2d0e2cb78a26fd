"""What the tests of several patterns need."""

from django_ayework.models import Work
from django_ayework.testing import drain, time_travel

ALWAYS = 10**6


def run_for(seconds, step=60.0, *, raises=True):
    """Run everything that becomes due within this time."""
    drain(raises=raises)
    for _ in range(int(seconds / step)):
        time_travel(step)
        drain(raises=raises)


def only(type, **values):
    """Return the one work of a type."""
    return Work.objects.get(type=type.name, **values)


def failing(act, error, times=ALWAYS):
    """Return a function that raises the first so many times, and then does what ``act`` does."""
    calls = iter(range(times))

    def call(*args, **kwargs):
        if next(calls, None) is not None:
            raise error
        return act(*args, **kwargs)

    return call


def answer_lost(act, times=ALWAYS):
    """Return a function that does what ``act`` does; its first answers are lost."""
    lose = failing(lambda: None, ConnectionError("the line is dead"), times)

    def call(*args, **kwargs):
        done = act(*args, **kwargs)
        lose()
        return done

    return call
