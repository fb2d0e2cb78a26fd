"""``ayework_typing`` writes a module; ``make types`` checks tests/typing/enqueueing_by_name.py against it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

import django_ayework
from django_ayework import registry, work
from tests.app.works import add


@pytest.fixture
def typed() -> Any:
    """A type of work that is known during the test."""

    @work(name="shop.typed-for-now")
    def typed(uuid: int, note: str = "") -> str:
        return note

    yield typed
    registry.unregister("shop.typed-for-now")


def executed(path: Path) -> dict[str, Any]:
    """Run a written module."""
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names


def test_the_written_module_enqueues(call: Any, tmp_path: Path, typed: Any) -> None:
    call("ayework_typing", "--output", str(tmp_path / "by_name.py"))
    names = executed(tmp_path / "by_name.py")
    assert names["enqueue"] is django_ayework.enqueue
    assert names["aenqueue"] is django_ayework.aenqueue
    assert names["ShopTypedForNowInput"].__total__


def test_without_a_file_the_module_is_printed(call: Any, typed: Any) -> None:
    printed = call("ayework_typing")
    ast.parse(printed)
    assert f'Literal["{add.name}"]' in printed
    assert '"uuid": "int"' in printed
    assert '"note": NotRequired["str"]' in printed


def test_gates_and_the_tasks_of_django_are_left_out(call: Any) -> None:
    printed = call("ayework_typing")
    assert "@work/" not in printed
    assert "takes_context" not in printed


def test_check_fails_when_a_handler_has_changed(call: Any, tmp_path: Path, typed: Any) -> None:
    path = tmp_path / "by_name.py"
    with pytest.raises(CommandError, match=r"is not up to date. Write it again: manage.py ayework_typing"):
        call("ayework_typing", "--check", "--output", str(path))
    call("ayework_typing", "--output", str(path))
    call("ayework_typing", "--check", "--output", str(path))
    registry.unregister(typed.name)
    with pytest.raises(CommandError, match=r"by_name.py is not up to date"):
        call("ayework_typing", "--check", "--output", str(path))


def test_check_needs_a_file(call: Any) -> None:
    with pytest.raises(CommandError, match=r"expected --output FILE with --check, got --check alone"):
        call("ayework_typing", "--check")
