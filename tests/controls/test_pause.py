"""Pausing and resuming types and queues."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_ayework import UnknownWorkType, alimit, apause, aresume, enqueue, limit, pause, resume, work
from django_ayework.errors import InvalidOption
from django_ayework.flow.controls import current_controls
from django_ayework.models import WorkControl
from django_ayework.testing import drain
from tests.controls.works import RAN, other, plain

pytestmark = pytest.mark.django_db


def test_works_of_a_paused_type_wait_and_others_run():
    enqueue(plain())
    enqueue(other())
    pause(type="controls.plain")
    enqueue(plain())
    drain()
    assert RAN == ["other"]
    resume(type="controls.plain")
    drain()
    assert RAN == ["other", "plain", "plain"]


def test_works_of_a_paused_queue_wait_and_those_of_others_run():
    enqueue(plain(label="mail"), queue="mail")
    enqueue(plain())
    pause(queue="mail")
    drain()
    assert RAN == ["plain"]
    resume(queue="mail")
    drain()
    assert RAN == ["plain", "mail"]


@pytest.mark.parametrize("act", [pause, resume])
def test_a_queue_that_is_nearly_one_of_a_types_is_told(act, caplog):
    work(name="t.pause.queued", queue="controls")(lambda: None)
    act(queue="contrlos")
    assert caplog.messages == ["No type of work uses the queue 'contrlos'. Did you mean 'controls'?"]
    caplog.clear()
    act(queue="controls")
    act(queue="something else")
    assert caplog.messages == []


def test_a_pause_that_is_rolled_back_pauses_nothing():
    with transaction.atomic():
        pause(type="controls.plain")
        transaction.set_rollback(True)
    enqueue(plain())
    drain()
    assert RAN == ["plain"]


def test_exactly_one_of_type_and_queue_is_named():
    with pytest.raises(TypeError, match="either type= or queue="):
        pause()
    with pytest.raises(TypeError, match="either type= or queue="):
        resume(type="controls.plain", queue="default")


def test_an_unknown_type_is_refused_with_the_nearest():
    with pytest.raises(UnknownWorkType, match=r"Did you mean 'controls\.plain'"):
        pause(type="controls.plane")
    with pytest.raises(UnknownWorkType):
        limit("controls.plane", weight=1)
    assert WorkControl.objects.count() == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"max_running": -1},
            "max_running to be a whole number from 0 to 2147483647, 0 for no limit, got: -1",
        ),
        ({"max_running": 1.5}, "got: 1.5"),
        ({"weight": 0}, "expected weight to be a whole number from 1 to 2147483647, got: 0"),
        ({"weight": True}, "got: True"),
        ({"priority": "high"}, "expected priority to be a whole number"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(given, message):
    with pytest.raises(InvalidOption, match=message):
        limit("controls.plain", **given)
    assert WorkControl.objects.count() == 0


def test_a_limit_needs_something_to_change():
    with pytest.raises(TypeError, match="at least one of max_running=, weight= and priority="):
        limit("controls.plain")


def test_what_is_not_given_stays():
    limit("controls.plain", max_running=3)
    limit("controls.plain", weight=5)
    pause(type="controls.plain")
    control = current_controls().of("controls.plain")
    assert (control.max_running, control.weight, control.priority, control.paused) == (3, 5, 0, True)
    limit("controls.plain", priority=2, max_running=0)
    control = current_controls().of("controls.plain")
    assert (control.max_running, control.weight, control.priority, control.paused) == (0, 5, 2, True)


def test_operators_overrule_what_is_declared():
    assert current_controls().of("controls.declared").max_running == 2
    limit("controls.declared", max_running=0)
    assert current_controls().of("controls.declared").max_running == 0


def test_the_twins_do_the_same():
    async_to_sync(apause)(type="controls.plain")
    async_to_sync(alimit)("controls.plain", weight=7)
    assert [row.weight for row in WorkControl.objects.filter(paused=True)] == [7]
    async_to_sync(aresume)(type="controls.plain")
    assert WorkControl.objects.filter(paused=False).count() == 1
