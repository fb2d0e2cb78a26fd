"""What tests of the store share."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.fixture(params=["fast", "portable"])
def version(request, monkeypatch):
    """Run a test with the statements made for this database, and with those that every database takes."""
    resolution = import_module("django_ayework.store.resolution")
    monkeypatch.setattr(resolution, "keeps_plans", lambda database: True)  # as in the engine's own sessions
    if request.param == "portable":
        for name in ("bulk", "dependencies", "groups", "resolution", "claims"):
            module = import_module(f"django_ayework.store.{name}")
            monkeypatch.setattr(module, "is_postgresql", lambda: False, raising=False)
            monkeypatch.setattr(module, "has_returning", lambda: False, raising=False)
        monkeypatch.setattr(import_module("django_ayework.store.claims"), "vendor", lambda: "any")
