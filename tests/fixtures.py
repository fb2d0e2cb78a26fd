"""Fixtures that several folders share: a folder's ``conftest`` imports those it wants."""

from __future__ import annotations

from collections.abc import Iterator

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
def undeclared() -> Iterator[None]:
    """Forget the types under which tests declare handlers of their own."""
    from django_ayework.define.types import registry

    known = set(registry.names())
    yield
    for name in set(registry.names()) - known:
        registry.unregister(name)


@pytest.fixture
def quick_polls(settings: object) -> None:
    """Workers of this process look often."""
    settings.AYEWORK = {"POLL_INTERVAL": 0.05}  # type: ignore[attr-defined]
