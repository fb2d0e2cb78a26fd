"""``ayework_explain``: why a work is not running."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management.base import CommandError

from django_ayework import enqueue
from django_ayework.testing.factories import WorkerProcessFactory, WorkFactory
from tests.app.works import add

pytestmark = pytest.mark.django_db


def test_it_tells_the_status_and_each_reason(call: Any) -> None:
    WorkerProcessFactory(running=8)
    WorkFactory(priority=1)
    handle = enqueue(add(a=1, b=2))
    assert call("ayework_explain", handle.id).splitlines() == [
        f"{handle.id} is pending.",
        "  All slots of the worker that serves its queue 'default' were busy at the last heartbeat (8/8).",
        "  1 work is ahead of it in its queue 'default': of higher priority, or due for longer.",
    ]


def test_it_answers_in_json(call_json: Any) -> None:
    handle = enqueue(add(a=1, b=2), delay=60)
    answer = call_json("ayework_explain", handle.id)
    [reason] = answer.pop("reasons")
    assert answer == {"id": handle.id, "status": "scheduled"}
    assert reason["code"] == "not_due"
    assert reason["text"].startswith("It is due at ")
    assert set(reason["facts"]) == {"run_at", "seconds"}


def test_a_work_that_is_not_there(call: Any) -> None:
    with pytest.raises(CommandError, match="no work has the id 'nowhere'"):
        call("ayework_explain", "nowhere")
