"""The examples in docstrings."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = ["charts", "inspection.findings", "inspection.lines", "inspection.metadata", "inspection.records"]


@pytest.mark.parametrize("name", [*MODULES, "terminal", "templatetags.audit_numbers"])
def test_examples_in_docstrings(name: str) -> None:
    results = doctest.testmod(import_module(f"example_project.audit.{name}"))
    assert results.attempted > 0
    assert results.failed == 0
