"""``manage.py audit``."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command

from django_ayework import Status
from example_project.audit import progress, works
from example_project.audit.models import Audit

Install = Callable[..., Path]


class Terminal(StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def installed(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two distributions, one with a missing file."""
    locations = [install("good"), install("broken")]
    (locations[1].parent / "broken.py").unlink()
    monkeypatch.setattr(works, "installed_locations", lambda: locations)


@pytest.mark.django_db
def test_without_waiting() -> None:
    out = StringIO()
    call_command("audit", wait=False, stdout=out)
    audit = Audit.objects.get()
    assert out.getvalue() == f"{audit} is queued; page: {audit.get_absolute_url()}\n"


@pytest.mark.django_db
def test_no_worker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", -1)
    err = StringIO()
    with pytest.raises(CommandError, match=r"No worker answered within 0\.5 s"):
        call_command("audit", timeout=0.5, stdout=StringIO(), stderr=err)
    assert err.getvalue().count("ayework_worker") == 1


@pytest.mark.django_db
def test_a_dead_root_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = SimpleNamespace(type="audit.x", status=Status.dead, attempt=3, error="boom", reason="exhausted")
    monkeypatch.setattr(progress, "get_handle", lambda id: SimpleNamespace(state=lambda: dead))
    with pytest.raises(CommandError, match="failed: boom") as raised:
        call_command("audit", stdout=StringIO())
    assert raised.value.returncode == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("stream", [StringIO, Terminal])
def test_with_a_worker_inside(stream: type[StringIO]) -> None:
    out = stream()
    call_command("audit", with_worker=True, timeout=60, stdout=out)
    printed = out.getvalue()
    for text in (
        "2 packages",
        "1 broken files",
        "Largest packages",
        "broken.py: missing",
        "Page:",
        "2/2 finished",
    ):
        assert text in printed
    # On a terminal every drawing but the first goes over the one before it.
    assert printed.count("\n\r") == (1 if stream is Terminal else 0)
