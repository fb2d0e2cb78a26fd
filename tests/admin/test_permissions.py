"""Who may do what: nobody writes rows by hand."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.test import Client, RequestFactory

from django_ayework.models import DeadLetter, Group, Work, WorkerProcess
from django_ayework.testing.factories import DeadLetterFactory, GroupFactory, WorkerProcessFactory
from tests.admin.kit import address

MODELS: list[Any] = [Work, DeadLetter, Group, WorkerProcess]
pytestmark = pytest.mark.django_db


@pytest.fixture
def ids() -> dict[Any, str]:
    dead = DeadLetterFactory()
    return {
        Work: dead.id,
        DeadLetter: dead.id,
        Group: GroupFactory().id,
        WorkerProcess: WorkerProcessFactory().id,
    }


@pytest.mark.parametrize("model", MODELS)
def test_not_even_a_superuser_adds_changes_or_deletes(
    operator: Client, ids: dict[Any, str], model: Any
) -> None:
    name, id = model._meta.model_name, ids[model]
    before = model.objects.filter(pk=id).values().get()
    assert operator.get(address(f"{name}_add")).status_code == 403
    assert operator.post(address(f"{name}_add"), {"id": "new"}).status_code == 403
    assert operator.post(address(f"{name}_change", id), {"type": "other", "pid": 1}).status_code == 403
    assert operator.post(address(f"{name}_delete", id), {"post": "yes"}).status_code == 403
    assert model.objects.filter(pk=id).values().get() == before


@pytest.mark.parametrize("model", MODELS)
def test_deleting_is_not_offered(operator: Client, ids: dict[Any, str], model: Any) -> None:
    assert (
        "delete_selected"
        not in operator.get(address(f"{model._meta.model_name}_changelist")).content.decode()
    )


@pytest.mark.parametrize("model", MODELS)
def test_viewing_needs_a_permission(
    client_with: Any, viewer: Client, ids: dict[Any, str], model: Any
) -> None:
    nobody = client_with()
    for page, args in (
        (f"{model._meta.model_name}_changelist", ()),
        (f"{model._meta.model_name}_change", (ids[model],)),
    ):
        assert viewer.get(address(page, *args)).status_code == 200
        assert nobody.get(address(page, *args)).status_code == 403


@pytest.mark.parametrize("model", MODELS)
def test_rows_are_read_where_the_queue_is(settings: Any, rf: RequestFactory, model: Any) -> None:
    settings.AYEWORK = {"DATABASE": "elsewhere"}
    request = rf.get("/")
    model_admin = admin.site.get_model_admin(model)
    if model is not WorkerProcess:  # asks that database for the time
        assert model_admin.get_queryset(request).db == "elsewhere"
