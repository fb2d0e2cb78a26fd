"""``@task_options``: the policy of the engine for one task; and the engine's own interface for tasks."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group

from django_ayework import Retry, explain, pause, registry
from django_ayework.contrib.tasks import task_options
from django_ayework.errors import ImproperWork, InvalidOption
from django_ayework.models import Work
from django_ayework.testing import drain
from tests.tasks import kit


def name_of(task: Any) -> str:
    return f"{kit.__name__}.{task.name}"


@pytest.mark.django_db
def test_each_task_is_a_type_of_its_own():
    result = kit.add.enqueue(1)
    assert Work.objects.get(id=result.id).type == name_of(kit.add)
    assert registry.get(name_of(kit.add)).handler.__doc__ == kit.add.func.__doc__


@pytest.mark.django_db
def test_the_engine_acts_on_tasks_as_on_any_work():
    result = kit.add.enqueue(1)
    pause(type=name_of(kit.add))
    assert drain().ran == 0
    assert "paused" in str(explain(result.id))


@pytest.mark.django_db
def test_a_task_is_tried_three_times_unless_somebody_says_otherwise(settings):
    settings.TASKS = {"default": {"BACKEND": settings.TASKS["default"]["BACKEND"]}}
    assert state_of(kit.fail.enqueue()).attempts == 3
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"RETRY": {"attempts": 7}}}}
    assert state_of(kit.fail.enqueue()).attempts == 7
    assert state_of(kit.fail_twice.enqueue("attempts")).attempts == 3


def state_of(result: Any) -> Any:
    from django_ayework import get_handle

    return get_handle(result.id).state()


@pytest.mark.django_db
def test_dedup_gives_the_result_of_the_task_that_is_queued_already(sent):
    first, again, other = kit.ship.enqueue(1), kit.ship.enqueue(order=1), kit.ship.enqueue(2)
    assert (first == again, first.id == other.id) == (True, False)
    assert [name for name, _ in sent] == ["task_enqueued"] * 2


@pytest.mark.django_db
def test_an_atomic_task_undoes_what_it_wrote():
    kit.write_then_fail.enqueue("undone")
    drain(raises=False)
    assert not Group.objects.filter(name="undone").exists()


@pytest.mark.django_db
def test_the_options_are_the_settings_of_the_type():
    kit.one_at_a_time.enqueue(), kit.sleep_long.enqueue()
    assert registry.get(name_of(kit.one_at_a_time)).settings.max_running == 1
    assert registry.get(name_of(kit.sleep_long)).settings.timeout == 0.2


@pytest.mark.parametrize(
    "option",
    [{"expires": 60}, {"interrupt": True}, {"weight": 5}, {"retention": {"success": 60}}, {"retry": Retry()}],
)
def test_an_option_reaches_the_settings_of_the_type(option):
    from django_ayework.contrib.tasks.backend import TaskType

    @task_options(**option)
    def function() -> None: ...

    [(key, value)] = option.items()
    assert getattr(TaskType(function, "t.options").settings, key) == value


def test_options_that_cannot_be_used_are_refused():
    with pytest.raises(TypeError, match="Did you mean 'retry'"):
        task_options(retri=1)
    with pytest.raises(InvalidOption):
        task_options(dedup=5)
    with pytest.raises(InvalidOption):
        task_options(max_running=-1)
    with pytest.raises(TypeError, match="line above"):
        task_options(timeout=5)(kit.add)  # type: ignore[type-var]


def test_a_coroutine_cannot_be_atomic():
    async def function() -> None: ...

    with pytest.raises(ImproperWork):
        task_options(atomic=True)(function)
