"""The promises of Django's tasks, each through the public interface of Django."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone

from django_ayework import cancel, enqueue, retry
from django_ayework.contrib.tasks import AyeworkBackend
from django_ayework.models import Work
from django_ayework.testing import drain, time_travel
from tests.app.works import add as plain_work
from tests.tasks import kit
from tests.tasks.kit import exceptions, finished, framework

pytestmark = pytest.mark.django_db
FIELDS = (
    *("task", "id", "status", "enqueued_at", "started_at", "finished_at", "last_attempted_at"),
    *("args", "kwargs", "backend", "errors", "worker_ids"),
)


def facts(result: Any) -> dict[str, Any]:
    return {name: getattr(result, name) for name in FIELDS}


# 1, 2, 25


def test_1_a_backend_has_its_alias_queues_and_options(backend):
    assert isinstance(backend, AyeworkBackend)
    assert (backend.alias, backend.queues) == ("default", set())
    assert backend.options == {"RETRY": {"attempts": 1}}
    assert framework.task_backends["plain"].queues == {"default"}
    assert framework.task_backends["default"] is backend


def test_1_an_unknown_alias_or_path_is_an_invalid_backend(settings):
    invalid = getattr(exceptions, "InvalidTaskBackend", None) or exceptions.InvalidTaskBackendError
    with pytest.raises(invalid):
        framework.task_backends["nowhere"]
    settings.TASKS = {"default": {"BACKEND": "nowhere.Backend"}}
    with pytest.raises(invalid):
        framework.task_backends["default"]


def test_2_the_flags_say_that_everything_is_supported(backend):
    assert backend.supports_defer and backend.supports_async_task
    assert backend.supports_get_result and backend.supports_priority


def test_25_tasks_follow_when_the_backend_is_swapped_and_swapped_back(settings):
    ours = settings.TASKS
    settings.TASKS = {"default": {"BACKEND": f"{kit.NAME}.backends.immediate.ImmediateBackend"}}
    assert kit.add.enqueue(1, 2).return_value == 3
    assert kit.count() == 0
    settings.TASKS = ours
    assert finished(kit.add.enqueue(1, 2)).return_value == 3
    assert kit.count() == 1


# 3, 4, 5, 6


def noted(a: int) -> int:
    return a


@pytest.mark.skipif(django.VERSION[:2] == (6, 0), reason="Django 6.0 takes no other fields")
def test_3_a_task_may_have_fields_of_the_projects_own(settings):
    settings.TASKS = {"default": {"BACKEND": "tests.tasks.kit.NotingBackend"}}
    task = kit.task(note="mine")(noted)
    result = task.using(priority=3).enqueue(1)
    assert (type(result.task), result.task.note) == (kit.NotedTask, "mine")
    assert task.get_result(result.id) == result
    assert finished(result).return_value == 1


def no_context(other: Any) -> None:
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda: kit.add.using(priority=101),
        lambda: kit.add.using(priority=-101),
        lambda: kit.add.using(priority=1.5),
        lambda: kit.add.using(run_after=datetime(2030, 1, 1)),
        lambda: kit.add.using(backend="plain", queue_name="other"),
        lambda: kit.task(lambda: None),
        lambda: kit.task(takes_context=True)(no_context),
    ],
    ids=["too high", "too low", "no whole number", "naive", "unknown queue", "inner function", "no context"],
)
def test_4_what_cannot_be_used_is_an_invalid_task(make):
    with pytest.raises(kit.InvalidTask):
        make()


def test_4_a_task_is_validated_again_when_it_is_enqueued(settings):
    special = kit.add.using(queue_name="special")
    settings.TASKS = {"default": {"BACKEND": settings.TASKS["default"]["BACKEND"]}}
    with pytest.raises(kit.InvalidTask):
        special.enqueue(1)
    assert kit.count() == 0


def test_5_using_copies_and_the_original_is_unchanged():
    changed = kit.add.using(priority=5, queue_name="q", backend="default")
    assert (changed.priority, changed.queue_name) == (5, "q")
    assert (kit.add.priority, kit.add.queue_name) == (0, "default")
    assert changed.func is kit.add.func


def test_6_run_after_may_be_a_duration_that_counts_from_enqueueing():
    before = timezone.now()
    result = kit.add.using(run_after=timedelta(hours=1)).enqueue(1)
    assert timedelta(minutes=59) < result.task.run_after - before < timedelta(minutes=61)
    assert drain().ran == 0
    time_travel(timedelta(minutes=61))
    assert finished(result).return_value == 2


# 7, 8, 9, 10


@pytest.mark.parametrize(
    "changes",
    [{}, {"priority": 7}, {"queue_name": "mail"}, {"run_after": timezone.now() + timedelta(1)}],
    ids=["plain", "priority", "queue", "run_after"],
)
def test_7_enqueue_returns_what_get_result_gives(changes):
    task = kit.add.using(**changes)
    result = task.enqueue(1)
    assert facts(result) == facts(task.get_result(result.id))
    assert result == task.get_result(result.id)
    assert (result.status, result.args, result.kwargs, result.attempts) == ("READY", [1], {}, 0)
    assert result.started_at is result.last_attempted_at is result.finished_at is None
    assert (result.errors, result.worker_ids, result.backend) == ([], [], "default")
    assert result.enqueued_at is not None


def test_8_ids_are_short_texts_and_unique():
    ids = {kit.add.enqueue(1).id for _ in range(20)}
    assert len(ids) == 20
    assert all(isinstance(id, str) and len(id) < 64 for id in ids)


def test_9_arguments_come_as_json_makes_them():
    result = kit.echo.enqueue((1, 2), b"text", args={"a": (1,)}, kwargs=None, ctx=1, alias=3)
    kwargs = {"args": {"a": [1]}, "kwargs": None, "ctx": 1, "alias": 3}
    assert (result.args, result.kwargs) == ([[1, 2], "text"], kwargs)
    assert finished(result).return_value == [[[1, 2], "text"], kwargs]


@pytest.mark.parametrize("value", [object(), {1, 2}, timezone.now()], ids=["object", "set", "moment"])
def test_9_arguments_that_json_cannot_hold_are_refused_before_any_sql(value, django_assert_num_queries):
    with django_assert_num_queries(0), pytest.raises(TypeError, match="Unsupported type"):
        kit.echo.enqueue([value])


def test_9_bytes_that_are_no_text_are_a_value_error(django_assert_num_queries):
    with django_assert_num_queries(0), pytest.raises(ValueError):
        kit.echo.enqueue(b"\xff")


@pytest.mark.parametrize(
    "value", ["a\x00b", "\ud800", float("inf"), float("nan"), {1: 2}, "\U0001f375", 2**70]
)
def test_9_odd_values_are_kept(value):
    result = kit.echo.enqueue(value)
    assert repr(kit.echo.get_result(result.id).args) == repr([value])  # NaN does not equal itself
    assert repr(finished(result).return_value) == repr([[value], {}])


def test_10_a_rolled_back_transaction_leaves_nothing():
    with pytest.raises(LookupError), transaction.atomic():
        result = kit.add.enqueue(1)
        raise LookupError
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        kit.add.get_result(result.id)


# 11, 12, 13


@pytest.mark.parametrize("id", ["unknown", "", "with space", "x" * 200, "nul\x00", 17, None])
def test_11_a_result_that_is_not_there_does_not_exist(id):
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        kit.add.get_result(id)


def test_11_a_work_that_is_no_task_does_not_exist():
    handle = enqueue(plain_work(a=1, b=2))
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        kit.add.get_result(handle.id)


def test_11_the_result_of_another_task_is_a_mismatch_but_the_backend_gives_it(backend):
    result = kit.echo.enqueue()
    with pytest.raises(exceptions.TaskResultMismatch):
        kit.add.get_result(result.id)
    assert backend.get_result(result.id) == result


def test_12_a_result_changes_by_refresh_alone():
    result = kit.add.enqueue(1)
    drain()
    assert result.status == "READY"
    result.refresh()
    assert (result.status, result.return_value) == ("SUCCESSFUL", 2)
    with pytest.raises(AttributeError):
        result.status = "READY"


def test_13_the_value_of_a_task_that_has_not_finished_and_of_one_that_failed():
    result = kit.fail.enqueue()
    with pytest.raises(ValueError, match="Task has not finished yet"):
        _ = result.return_value
    with pytest.raises(ValueError, match="Task failed"):
        _ = finished(result).return_value


def test_13_none_is_a_value():
    result = finished(kit.nothing.enqueue())
    assert (result.status, result.is_finished, result.return_value) == ("SUCCESSFUL", True, None)


# 14, 15, 16, 17, 18


def test_14_a_task_between_attempts_is_ready_again():
    result = kit.fail_twice.enqueue("ready")
    drain(limit=1, raises=False)
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == ("READY", 1, 1)
    assert result.finished_at is None


def test_14_a_cancelled_task_has_failed_with_an_error():
    result = kit.add.enqueue(1)
    cancel(result.id)
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 0)
    assert [each.exception_class.__name__ for each in result.errors] == ["WorkCancelled"]


def test_15_the_moments_are_in_order():
    result = finished(kit.fail_twice.enqueue("moments"))
    assert result.status == "SUCCESSFUL"
    moments = [result.enqueued_at, result.started_at, result.last_attempted_at, result.finished_at]
    assert moments == sorted(moments)


@pytest.mark.parametrize(
    ("task", "path"),
    [
        (kit.fail, "builtins.ValueError"),
        (kit.fail_later, "builtins.ValueError"),
        (kit.fail_unpicklably, f"{kit.__name__}.Unpicklable"),
        (kit.fail_locally, f"{kit.__name__}.fail_locally.<locals>.Local"),
        (kit.leave, "builtins.SystemExit"),
        (kit.give_up, "django_ayework.errors.Abort"),
    ],
    ids=["plain", "async", "unpicklable", "local", "SystemExit", "Abort"],
)
def test_16_an_error_has_the_path_of_its_class_and_the_traceback(task, path):
    result = finished(task.enqueue())
    assert result.status == "FAILED"
    [error] = result.errors
    assert error.exception_class_path == path
    name = path.removeprefix("builtins.")
    assert error.traceback.rstrip().splitlines()[-1].startswith(name)
    if "<locals>" in path:
        with pytest.raises(ImportError):
            _ = error.exception_class
    else:
        assert error.exception_class.__qualname__ == path.rpartition(".")[2]


def test_16_there_is_an_error_for_each_attempt_that_failed():
    result = finished(kit.fail_twice.enqueue("errors"))
    assert [error.exception_class for error in result.errors] == [LookupError, LookupError]
    assert ["try 1" in result.errors[0].traceback, "try 2" in result.errors[1].traceback] == [True, True]


def test_17_there_is_a_worker_for_each_attempt():
    result = finished(kit.fail_twice.enqueue("workers"))
    assert (result.worker_ids, result.attempts, result.return_value) == (["drain"] * 3, 3, 3)


def test_17_a_failed_task_that_is_retried_counts_from_one_again():
    result = finished(kit.fail.enqueue())
    retry(result.id)
    result.refresh()
    assert (result.status, result.attempts, result.errors, result.started_at) == ("READY", 0, [], None)
    assert (finished(result).attempts, len(result.errors)) == (1, 1)


def test_18_the_context_has_the_running_result():
    result = kit.with_context.enqueue(number=7)
    assert finished(result).return_value == [7, 1, result.id, "RUNNING", ["drain"]]
    assert finished(kit.later_with_context.enqueue()).return_value == 1


# 19, 20, 21


def test_19_call_runs_here_and_queues_nothing():
    assert (kit.add.call(1, b=4), kit.later.call(1)) == (5, 2)
    assert async_to_sync(kit.add.acall)(1) == 2
    assert kit.count() == 0


@pytest.mark.django_db(transaction=True)
def test_20_the_awaitable_forms_work_in_an_event_loop():
    async def act() -> Any:
        result = await kit.later.aenqueue(1)
        assert await kit.later.aget_result(result.id) == result
        await result.arefresh()
        return result

    result = async_to_sync(act)()
    assert finished(result).return_value == 2


def test_21_a_value_that_cannot_be_stored_fails_the_task():
    result = finished(kit.unstorable.enqueue())
    assert (result.status, result.errors[0].exception_class) == ("FAILED", TypeError)
    assert "Unsupported type" in result.errors[0].traceback


# 22


def test_22_the_signals_of_a_success(sent):
    result = kit.add.enqueue(1)
    assert [name for name, _ in sent] == ["task_enqueued"]
    assert sent[0][1]["result"] == result
    drain()
    assert [name for name, _ in sent] == ["task_enqueued", "task_started", "task_finished"]
    assert {each["sender"] for _, each in sent} == {AyeworkBackend}
    assert [str(each["result"].status) for _, each in sent] == ["READY", "RUNNING", "SUCCESSFUL"]
    result.refresh()
    assert sent[-1][1]["result"] == result
    assert sent[-1][1]["result"].return_value == 2


@pytest.mark.parametrize("task", [kit.fail, kit.fail_later], ids=["plain", "async"])
def test_22_the_signal_of_a_failure_is_sent_while_its_error_is_handled(sent, task):
    result = finished(task.enqueue())
    name, last = sent[-1]
    assert (name, last["result"]) == ("task_finished", result)
    assert isinstance(last["error"], ValueError)


def test_22_an_attempt_that_is_repeated_sends_no_end(sent):
    finished(kit.fail_twice.enqueue("signals"))
    assert [name for name, _ in sent] == ["task_enqueued", *["task_started"] * 3, "task_finished"]


def test_22_a_cancelled_task_sends_its_end(sent):
    cancel(kit.add.enqueue(1).id)
    drain()
    assert [(name, str(each["result"].status)) for name, each in sent][1:] == [("task_finished", "FAILED")]


def test_22_the_loggers_of_the_framework_tell_of_tasks(caplog):
    with caplog.at_level(logging.DEBUG, logger=kit.LOGGER):
        finished(kit.add.enqueue(1))
        finished(kit.fail.enqueue())
    levels = [record.levelname for record in caplog.records if record.name == kit.LOGGER]
    assert levels == ["DEBUG", "INFO", "INFO", "DEBUG", "INFO", "ERROR"]
    assert [r.exc_info[0] for r in caplog.records if r.name == kit.LOGGER and r.exc_info] == [ValueError]


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
@pytest.mark.parametrize("name", ["task_enqueued", "task_started", "task_finished"])
def test_22_a_receiver_that_raises_changes_nothing(name, error):
    def receiver(**keywords: Any) -> None:
        raise error

    signal = getattr(kit.signals, name)
    signal.connect(receiver)
    try:
        result = finished(kit.add.enqueue(1))
    finally:
        signal.disconnect(receiver)
    assert (result.status, result.attempts) == ("SUCCESSFUL", 1)


# 23, 24


def test_22_a_task_runs_whose_backend_the_settings_do_not_name_any_more(settings, sent):
    """Its alias may have been renamed in a deployment, while the task waited."""
    result = kit.add.using(backend="plain").enqueue(1)
    settings.TASKS = {"default": settings.TASKS["default"]}
    drain()
    assert Work.objects.get(id=result.id).status == "success"
    assert {each["sender"] for _, each in sent} == {AyeworkBackend}
    assert [name for name, _ in sent] == ["task_enqueued", "task_started", "task_finished"]


def test_23_a_higher_priority_comes_first():
    low, high = kit.add.using(priority=-100).enqueue(1), kit.add.using(priority=100).enqueue(1)
    drain(limit=1)
    low.refresh(), high.refresh()
    assert (low.status, high.status) == ("READY", "SUCCESSFUL")


def test_23_a_queue_is_the_queue_of_the_work():
    result = kit.add.using(queue_name="mail").enqueue(1)
    assert Work.objects.get(id=result.id).queue == "mail"


def problems(settings: Any, **backend: Any) -> list[str]:
    from django.core.checks import run_checks

    settings.TASKS = {"default": {"BACKEND": settings.TASKS["default"]["BACKEND"], **backend}}
    return [each.id for each in run_checks() if each.id in ("ayework.E012", "ayework.E013")]


@pytest.mark.parametrize(
    "options", [{"RETRIES": 1}, {"RETRY": {"attempt": 1}}, {"RETRY": {"attempts": 0}}, {"MODULES": ["no.no"]}]
)
def test_24_the_system_check_finds_options_that_cannot_be_used(settings, options):
    assert problems(settings, OPTIONS=options) == ["ayework.E013"]


def test_24_the_system_check_is_clean_otherwise(settings):
    assert problems(settings, OPTIONS={"RETRY": {"attempts": 2}, "MODULES": ["tests.tasks.kit"]}) == []


def test_24_the_system_check_finds_a_missing_app(settings):
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "django_ayework"]
    [error, *_] = framework.task_backends["default"].check()
    assert error.id == "ayework.E012"
