"""Contexts and types for tests that need no engine."""

from django_ayework import work
from django_ayework.define.context import Assignment, Context


def context(**facts) -> Context:
    assignment = {"id": "me", "type": "shop.me", "group_id": "us", "chain_id": "me", "attempt": 1} | facts
    return Context(Assignment(**assignment), services=None)


def step(name="step", **options):
    """A type of work with one optional input."""

    @work(name=name, **options)
    def handler(n: int = 0): ...

    return handler
