"""The call itself."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from django_ayework import Explanation, Status, WorkNotFound, aexplain, enqueue, explain
from django_ayework.testing import now
from django_ayework.testing.factories import WorkFactory
from tests.explain.kit import why
from tests.explain.works import one


def test_a_work_that_is_not_there():
    with pytest.raises(WorkNotFound, match=r"no work has the id 'nowhere'.*not committed") as caught:
        explain("nowhere")
    assert caught.value.id == "nowhere"


def test_it_is_data_and_a_sentence():
    explanation = explain(enqueue(one(number=1)).id)
    assert isinstance(explanation, Explanation)
    assert explanation.status is Status.PENDING
    assert str(explanation) == " ".join(reason.text for reason in explanation.reasons)
    with pytest.raises(dataclasses.FrozenInstanceError):
        explanation.id = "other"  # type: ignore[misc]
    assert hash(explanation) == hash(explain(explanation.id))


@pytest.mark.parametrize("status", list(Status))
def test_every_status_has_a_reason(status: Status):
    explanation = explain(WorkFactory(status=status).id)
    assert explanation.reasons
    assert all(reason.text.strip() for reason in explanation.reasons)


def test_for_async_code():
    handle = enqueue(one(number=1))
    assert async_to_sync(aexplain)(handle.id) == explain(handle.id)


def test_moments_are_told_in_the_current_time_zone():
    work = WorkFactory(status="scheduled", run_at=now() + timedelta(hours=1))
    with timezone.override("Asia/Tokyo"):
        assert " JST (in " in why(work.id, "not_due")
