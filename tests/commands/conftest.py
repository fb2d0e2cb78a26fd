"""Calling commands as an operator does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """What is executed during the test from now on."""
    seen: list[str] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield seen


@pytest.fixture
def call() -> Any:
    """Call a command with its arguments as on a command line; return what it printed."""

    def call(name: str, *arguments: str) -> str:
        out = StringIO()
        call_command(name, *arguments, stdout=out)
        return out.getvalue()

    return call


@pytest.fixture
def call_json(call: Any) -> Any:
    """Call a command with ``--json``; return what it printed, read back."""

    def call_json(name: str, *arguments: str) -> Any:
        return json.loads(call(name, *arguments, "--json"))

    return call_json
