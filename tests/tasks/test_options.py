"""``@task_options``: the policy of the engine for one task; and the engine's own interface for tasks."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Group
from django.urls import reverse

from django_ayework import Retry, explain, get_handle, pause, registry
from django_ayework.contrib.tasks import task_options
from django_ayework.contrib.tasks.backend import TaskType
from django_ayework.errors import ImproperWork, InvalidOption
from django_ayework.models import Work
from django_ayework.rules.formatting import HIDDEN
from django_ayework.store import database
from django_ayework.store.database import clock
from django_ayework.testing import drain
from tests.tasks import kit

pytestmark = pytest.mark.vendors("sqlite")

ADD = f"{kit.__name__}.add"


@pytest.mark.django_db
def test_each_task_is_a_type_of_its_own_on_which_the_engine_acts_as_on_any_work():
    result = kit.add.enqueue(1)
    assert Work.objects.get(id=result.id).type == ADD
    assert registry.get(ADD).handler.__doc__ == kit.add.func.__doc__
    pause(type=ADD)
    assert drain().ran == 0
    assert "paused" in str(explain(result.id))


@pytest.mark.django_db
def test_a_task_is_tried_three_times_unless_somebody_says_otherwise(settings):
    def attempts(result):
        return get_handle(result.id).state().attempts

    settings.TASKS = {"default": {"BACKEND": settings.TASKS["default"]["BACKEND"]}}
    assert attempts(kit.fail.enqueue()) == 3
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"RETRY": {"attempts": 7}}}}
    assert attempts(kit.fail.enqueue()) == 7
    assert attempts(kit.fail_twice.enqueue("attempts")) == 3


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


@pytest.mark.parametrize(
    "option",
    [
        *({"expires": 60}, {"interrupt": True}, {"weight": 5}, {"retention": {"success": 60}}),
        *({"retry": Retry()}, {"max_running": 1}, {"timeout": 0.2}),
    ],
    ids=str,
)
def test_an_option_reaches_the_settings_of_the_type(option):
    @task_options(**option)
    def function(): ...

    [(key, value)] = option.items()
    assert getattr(TaskType(function, "t.options", "mail").settings, key) == value


async def coroutine(): ...


@pytest.mark.parametrize(
    ("options", "function", "error", "message"),
    [
        ({"retri": 1}, None, TypeError, "Did you mean 'retry'"),
        ({"queue": "mail"}, None, TypeError, r"Did you mean @task\(queue_name=…\)\?"),
        ({"priority": 5}, None, TypeError, r"Did you mean @task\(priority=…\)\?"),
        ({"delay": 5}, None, TypeError, r"Did you mean \.using\(run_after=…\)\?"),
        ({"dedup": 5}, None, InvalidOption, None),
        ({"max_running": -1}, None, InvalidOption, None),
        ({"timeout": 5}, kit.add, TypeError, "line above"),
        ({"atomic": True}, coroutine, ImproperWork, None),
    ],
    ids=["unknown", "queue", "priority", "delay", "no key", "negative", "below @task", "an atomic coroutine"],
)
def test_options_that_cannot_be_used_are_refused(options, function, error, message):
    with pytest.raises(error, match=message):
        decorate = task_options(**options)
        assert function is not None, "refused at once"
        decorate(function)


def test_options_without_brackets_are_refused_with_an_example():
    with pytest.raises(
        TypeError, match=r"^expected @task_options with options, .*Write @task_options\(retry=…\)"
    ):

        @task_options
        def function(): ...


@pytest.mark.django_db
def test_the_admin_hides_the_redacted_parameters_of_a_task(admin_client):
    for result in (kit.log_in.enqueue("ann", password="s3cret"), kit.log_in.enqueue("ann", "s3cret")):
        page = admin_client.get(
            reverse("admin:django_ayework_work_change", args=[result.id])
        ).content.decode()
        assert "s3cret" not in page
        assert HIDDEN in page
        assert result.args + list(result.kwargs.values()) == ["ann", "s3cret"]


def test_a_redacted_parameter_that_the_task_does_not_have_is_refused():
    @task_options(redact=["pasword"])
    def function(password): ...

    with pytest.raises(
        ImproperWork, match=r"to name its inputs \(password\), got: 'pasword'. Did you mean 'pass"
    ):
        TaskType(function, "t.options", "mail")


@pytest.mark.django_db
def test_a_duration_of_run_after_counts_on_the_databases_clock(monkeypatch):
    hours_ahead = datetime.now(UTC) + timedelta(hours=5)
    monkeypatch.setattr(database, "database_now", lambda: hours_ahead)
    clock.reset()
    kit.add.using(run_after=timedelta(minutes=1)).enqueue(1)
    found = Work.objects.get()
    assert (found.status, found.run_at >= hours_ahead + timedelta(minutes=1)) == ("scheduled", True)
