"""What tests of the store share."""

from __future__ import annotations

from importlib import import_module

import pytest

from django_ayework.store.database import dialect


@pytest.fixture(params=["fast", "portable"])
def version(request, monkeypatch):
    """Run a test with the statements made for this database, and with those that every database takes."""
    resolution = import_module("django_ayework.store.resolution")
    monkeypatch.setattr(resolution, "keeps_plans", lambda database: True)  # as in the engine's own sessions
    if request.param == "portable":
        for name in ("bulk", "dependencies", "groups", "resolution"):
            module = import_module(f"django_ayework.store.{name}")
            monkeypatch.setattr(module, "is_postgresql", lambda: False, raising=False)
            monkeypatch.setattr(module, "has_returning", lambda: False, raising=False)
        monkeypatch.setattr(type(dialect()), "has_arrays", False)
        monkeypatch.setattr(dialect(), "returns_updated", False)
