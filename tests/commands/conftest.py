"""Calling commands as an operator does."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command


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
