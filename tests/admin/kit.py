"""What the tests of the admin share."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.urls import reverse

from django_ayework import enqueue
from django_ayework.admin.works import WorkAdmin
from django_ayework.models import Work
from django_ayework.testing import drain, time_travel
from tests.app.works import fail


def address(page: str, *args: str, **query: str) -> str:
    """Return the address of a page of this app's admin."""
    return reverse(f"admin:django_ayework_{page}", args=args, query=query or None)


def die(message: str = "no luck", **options: Any) -> Work:
    """Queue a work and run it to death, with all its retries."""
    handle = enqueue(fail(message=message), **options)
    for _ in range(3):
        drain(raises=False)
        time_travel(60)
    return Work.objects.get(id=handle.id, status="dead")


def copies(row: Work, number: int) -> None:
    """Store a work that was built so many times, which is quicker than to build each."""
    columns = {field.attname: getattr(row, field.attname) for field in Work._meta.concrete_fields}
    Work.objects.bulk_create([Work(**columns | {"id": f"{row.id}-{n}"}) for n in range(number)])


def hide(monkeypatch: pytest.MonkeyPatch, model_admin: type[WorkAdmin] = WorkAdmin, **those: Any) -> None:
    """Leave works out of the queryset of an admin of works."""
    queryset = model_admin.get_queryset
    monkeypatch.setattr(
        model_admin, "get_queryset", lambda self, request: queryset(self, request).exclude(**those)
    )


def refuse(monkeypatch: pytest.MonkeyPatch, act: str, *ids: str) -> None:
    """Let the admin of works refuse the permission for an act on these works."""
    may = getattr(WorkAdmin, f"has_{act}_permission")
    monkeypatch.setattr(
        WorkAdmin,
        f"has_{act}_permission",
        lambda self, request, obj=None: may(self, request, obj) and getattr(obj, "pk", "") not in ids,
    )


def told(response: Any) -> list[str]:
    """Return the messages that a request has left for the user."""
    return [str(message) for message in get_messages(response.wsgi_request)]


def logged() -> list[str]:
    """Return what the log of the admin says, the oldest entry first."""
    return [entry.get_change_message() for entry in LogEntry.objects.order_by("id")]


def ids_on(response: Any) -> list[str]:
    """Return the ids of a list's rows, in order."""
    return [row.pk for row in response.context["cl"].result_list]


def assert_shows(text: str, *parts: str) -> None:
    """Require that a page has each of these texts."""
    assert [part for part in parts if part not in text] == []


def assert_hides(text: str, *parts: str) -> None:
    """Require that a page has none of these texts."""
    assert [part for part in parts if part in text] == []
