"""The settings of the example project."""

from __future__ import annotations

import pytest

from example_project.settings import database


def test_sqlite_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    chosen = database()
    assert chosen["NAME"].endswith("db.sqlite3")
    assert chosen["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


@pytest.mark.parametrize(
    ("url", "engine", "name", "options"),
    [
        ("mysql://root@127.0.0.1:3306/test", "mysql", "test", {"charset": "utf8mb4"}),
        ("postgres://user:secret@localhost:5432/test", "postgresql", "test", {}),
        ("sqlite:////srv/a.sqlite3?timeout=5", "sqlite3", "/srv/a.sqlite3", {"timeout": 5}),
    ],
)
def test_other_databases(
    monkeypatch: pytest.MonkeyPatch, url: str, engine: str, name: str, options: dict[str, object]
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    chosen = database()
    assert (chosen["ENGINE"], chosen["NAME"]) == (f"django.db.backends.{engine}", name)
    assert chosen["OPTIONS"].items() >= options.items()
    assert ("init_command" in chosen["OPTIONS"]) is (engine == "sqlite3")
