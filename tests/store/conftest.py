import pytest

from django_ayework.store import database, dependencies


@pytest.fixture(params=["fast", "portable"])
def version(request, monkeypatch):
    """Run a test with the statements made for this database, and with those that every database takes."""
    monkeypatch.setattr(dependencies, "keeps_plans", lambda database: True)  # as in the engine's own sessions
    if request.param == "portable":
        plain = type("Plain", (type(database.dialect()),), {"has_arrays": False})()
        plain.returns_updated = False
        monkeypatch.setattr(database, "dialect_of", lambda engine: plain)
