"""Fixtures that several folders share: a folder's ``conftest`` imports those it wants."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def consistent(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check every invariant after each test that has a database."""
    has_database = request.node.get_closest_marker("django_db") is not None
    if has_database:
        request.getfixturevalue("_django_db_helper")
    yield
    if has_database:
        from tests.invariants import assert_consistent

        assert_consistent()


@pytest.fixture(autouse=True)
def always_consistent(transactional_db: None) -> Iterator[None]:
    """Give each test a database in which it commits, and check every invariant after it."""
    from tests.invariants import assert_consistent

    yield
    assert_consistent()


@pytest.fixture(autouse=True)
def undeclared() -> Iterator[None]:
    """Forget the types under which tests declare handlers of their own."""
    from django_ayework.define.types import registry

    known = set(registry.names())
    yield
    for name in set(registry.names()) - known:
        registry.unregister(name)


#: Blocks of transaction.atomic() that tests leave open.
kept_blocks: list[Any] = []


def leave_a_block_open(reference: str, alias: str = "default") -> None:
    """Write an order inside of a transaction that is left open."""
    from django.db import transaction

    from tests.app.models import Order

    def block() -> Iterator[None]:
        with transaction.atomic(using=alias):
            Order.objects.using(alias).create(reference=reference)
            yield

    kept_blocks.append(block())
    next(kept_blocks[-1])


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """Close the blocks that were left open; the engine has closed each before."""
    yield
    for one in kept_blocks:
        with pytest.raises(Exception, match="closed by django_ayework"):
            one.close()
    kept_blocks.clear()


@pytest.fixture
def quick_polls(settings: Any) -> None:
    """Workers of this process look often."""
    settings.AYEWORK = {"POLL_INTERVAL": 0.05}


@pytest.fixture
def reported(settings: Any) -> list[tuple[str, str]]:
    """The calls of ``ON_ERROR``: the error's text and the phase. Other keys stay as they were set before."""
    calls: list[tuple[str, str]] = []
    settings.AYEWORK = {
        **getattr(settings, "AYEWORK", {}),
        "ON_ERROR": lambda error, phase: calls.append((str(error), phase)),
    }
    return calls


def fresh_stage(module: str) -> Any:
    """Make a fixture: a fresh ``stage`` in a module of works; works that still wait are let go in the end."""

    @pytest.fixture(autouse=True, name="stage")
    def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        works = importlib.import_module(module)
        fresh = works.Stage()
        monkeypatch.setattr(works, "stage", fresh)
        yield fresh
        fresh.go.set()

    return stage
