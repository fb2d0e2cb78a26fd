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
