"""The factories: each makes a row that is valid and that the engine can live with."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.core.exceptions import ValidationError

from django_ayework import Status, get_handle
from django_ayework.models import Work
from django_ayework.testing import factories
from django_ayework.testing.factories import (
    AttemptFactory,
    DeadLetterFactory,
    EdgeFactory,
    EngineFactory,
    FiringFactory,
    GroupFactory,
    ScheduleFactory,
    StoreEntryFactory,
    WaiterFactory,
    WorkControlFactory,
    WorkerProcessFactory,
    WorkFactory,
)

pytestmark = pytest.mark.django_db

ALL = [
    WorkFactory,
    DeadLetterFactory,
    GroupFactory,
    WaiterFactory,
    EdgeFactory,
    AttemptFactory,
    WorkerProcessFactory,
    StoreEntryFactory,
    WorkControlFactory,
    ScheduleFactory,
    FiringFactory,
]


def test_every_model_has_a_factory() -> None:
    made = {
        factory._meta.model
        for factory in vars(factories).values()
        if isinstance(factory, type) and issubclass(factory, EngineFactory) and factory is not EngineFactory
    }
    assert made == {factory._meta.model for factory in ALL}
    assert made == set(apps.get_app_config("django_ayework").get_models(include_auto_created=False))


@pytest.mark.parametrize("factory", ALL, ids=lambda factory: factory.__name__)
def test_a_factory_makes_rows_that_are_valid_and_differ(factory: Any) -> None:
    rows = factory.create_batch(3)
    for row in rows:
        try:
            row.clean_fields()
        except ValidationError as invalid:
            pytest.fail(f"{factory.__name__}: {invalid}")
        assert type(row).objects.get(pk=row.pk) == row
        assert str(row)
    assert len({row.pk for row in rows}) == 3


@pytest.mark.parametrize("status", list(Status))
def test_a_work_of_any_status_has_a_state(status: Status) -> None:
    row = WorkFactory(status=status)
    state = get_handle(row.id).state()
    assert state is not None
    assert state.status is status
    assert (state.ended_at is not None) == (status in Status.terminal)


def test_a_work_made_can_be_run(drain: Any) -> None:
    row = WorkFactory(input='{"a":3,"b":4}')
    assert drain().succeeded == 1
    assert get_handle(row.id).result(timeout=0) == 7


def test_a_dead_letter_shows_why() -> None:
    state = get_handle(DeadLetterFactory().id).state()
    assert state is not None
    assert (state.status, state.reason, state.error) == ("dead", "exhausted", "ValueError: no luck")
    assert Work.objects.get().ended_at is not None
