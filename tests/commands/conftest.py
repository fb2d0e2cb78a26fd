"""Calling commands as an operator does."""

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection


@pytest.fixture
def statements():
    """What is executed during the test from now on."""
    seen = []

    def note(execute, sql, params, many, context):
        seen.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield seen


def ended(name: str, *arguments: str) -> tuple[int, str, str]:
    """Call a command as on a command line; return its status, its output and its errors."""
    out, err, status = StringIO(), StringIO(), 0
    try:
        call_command(name, *arguments, stdout=out, stderr=err)
    except SystemExit as end:
        status = int(end.code or 0)
    return status, out.getvalue(), err.getvalue()


@pytest.fixture
def call():
    """Call a command that must end well; return what it printed."""

    def call(name: str, *arguments: str) -> str:
        status, out, err = ended(name, *arguments)
        assert status == 0, out + err
        return out

    return call


@pytest.fixture
def call_json(call):
    """Call a command with ``--json``; return what it printed, read back."""
    return lambda name, *arguments: json.loads(call(name, *arguments, "--json"))
