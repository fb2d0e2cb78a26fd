"""The promises of Django's tasks, each through the public interface of Django, and ends it does not know."""

import logging
import pickle
from datetime import datetime, timedelta

import django
import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_ayework import Retry, WorkCancelled, WorkFailed, cancel, complete, enqueue, registry, retry
from django_ayework.contrib.tasks import AyeworkBackend
from django_ayework.flow.maintenance import prune
from django_ayework.models import Work
from django_ayework.testing import drain, faults, time_travel
from django_ayework.testing.factories import AttemptFactory
from django_ayework.testing.running import WORKER
from tests.app.works import add as plain_work
from tests.marks import each_database
from tests.tasks import kit
from tests.tasks.kit import exceptions, finished, framework

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
FIELDS = (
    *("task", "id", "status", "enqueued_at", "started_at", "finished_at", "last_attempted_at"),
    *("args", "kwargs", "backend", "errors", "worker_ids"),
)


def names(sent):
    return [name for name, _ in sent]


def statuses(sent):
    return [str(each["result"].status) for _, each in sent]


def test_1_2_a_backend_has_its_alias_queues_options_and_flags(backend, settings):
    assert isinstance(backend, AyeworkBackend)
    assert (backend.alias, backend.queues) == ("default", set())
    assert backend.options == {"RETRY": {"attempts": 1}}
    assert framework.task_backends["plain"].queues == {"default"}
    assert framework.task_backends["default"] is backend
    assert backend.supports_defer and backend.supports_async_task
    assert backend.supports_get_result and backend.supports_priority
    settings.TASKS = {"default": {"BACKEND": "nowhere.Backend"}}
    for unknown in ("nowhere", "default"):
        with pytest.raises(kit.InvalidBackend):
            framework.task_backends[unknown]


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


def no_context(other):
    pass


nameless = lambda: None  # noqa: E731


@pytest.mark.parametrize(
    "make",
    [
        lambda: kit.add.using(priority=101),
        lambda: kit.add.using(priority=-101),
        lambda: kit.add.using(priority=1.5),
        lambda: kit.add.using(run_after=datetime(2030, 1, 1)),
        lambda: kit.add.using(backend="plain", queue_name="other"),
        lambda: kit.add.using(queue_name="other,"),
        lambda: kit.task(lambda: None),
        lambda: kit.task(nameless),
        lambda: kit.task(takes_context=True)(no_context),
    ],
    ids=[
        *("too high", "too low", "no whole number", "naive", "unknown queue", "unusable queue"),
        *("inner function", "lambda", "no context"),
    ],
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


def test_6_run_after_may_be_a_duration_however_long_that_counts_from_enqueueing():
    before = timezone.now()
    result = kit.add.using(run_after=timedelta(hours=1)).enqueue(1)
    assert timedelta(minutes=59) < result.task.run_after - before < timedelta(minutes=61)
    assert kit.add.using(run_after=timedelta.max).enqueue(1).task.run_after.year == 9999
    assert drain().ran == 0
    time_travel(timedelta(minutes=61))
    assert finished(result).return_value == 2


@each_database
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"priority": 7},
        {"queue_name": "mail"},
        {"run_after": timezone.now() + timedelta(1)},
        {"backend": "plain"},
    ],
    ids=["plain", "priority", "queue", "run_after", "backend"],
)
def test_7_8_23_enqueue_returns_what_get_result_gives_and_its_id_is_a_short_text(changes):
    task = kit.add.using(**changes)
    result = task.enqueue(1)
    again = task.get_result(result.id)
    assert [getattr(result, name) for name in FIELDS] == [getattr(again, name) for name in FIELDS]
    assert result == again
    assert (result.status, result.args, result.kwargs, result.attempts) == ("READY", [1], {}, 0)
    assert result.started_at is result.last_attempted_at is result.finished_at is None
    assert (result.errors, result.worker_ids, result.backend) == ([], [], changes.get("backend", "default"))
    assert result.enqueued_at is not None
    assert isinstance(result.id, str) and len(result.id) < 64 and result.id != task.enqueue(1).id
    assert Work.objects.get(id=result.id).queue == changes.get("queue_name", "default")


def test_9_arguments_come_as_json_makes_them():
    result = kit.echo.enqueue((1, 2), b"text", args={"a": (1,)}, kwargs=None, ctx=1, alias=3)
    kwargs = {"args": {"a": [1]}, "kwargs": None, "ctx": 1, "alias": 3}
    assert (result.args, result.kwargs) == ([[1, 2], "text"], kwargs)
    assert finished(result).return_value == [[[1, 2], "text"], kwargs]


@pytest.mark.parametrize(
    "value",
    [[object()], [{1, 2}], [timezone.now()], b"\xff"],
    ids=["object", "set", "moment", "bytes that are no text"],
)
def test_9_arguments_that_json_cannot_hold_are_refused_before_any_sql(value, django_assert_num_queries):
    error, match = (ValueError, None) if isinstance(value, bytes) else (TypeError, "Unsupported type")
    with django_assert_num_queries(0), pytest.raises(error, match=match):
        kit.echo.enqueue(value)


@each_database
@pytest.mark.parametrize(
    "value", ["a\x00b", "\ud800", float("inf"), float("nan"), {1: 2}, "\U0001f375", 2**70]
)
def test_9_odd_values_are_kept(value):
    result = kit.echo.enqueue(value)
    assert repr(kit.echo.get_result(result.id).args) == repr([value])  # NaN does not equal itself
    assert repr(finished(result).return_value) == repr([[value], {}])


@each_database
def test_10_a_rolled_back_transaction_or_savepoint_leaves_nothing():
    with transaction.atomic():
        kept = kit.add.enqueue(1)
        with pytest.raises(LookupError), transaction.atomic():
            undone = kit.add.enqueue(2)
            raise LookupError
    assert finished(kept).return_value == 2
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        kit.add.get_result(undone.id)


@pytest.mark.parametrize("id", ["unknown", "", "with space", "x" * 200, "nul\x00", 17, None])
def test_11_a_result_that_is_not_there_does_not_exist(id):
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        kit.add.get_result(id)


def renamed(type):
    """A task whose type is another one by now."""
    id = kit.add.enqueue(1).id
    Work.objects.filter(id=id).update(type=type)
    return id


def pruned():
    id = finished(kit.add.enqueue(1)).id
    time_travel(timedelta(days=365))
    prune()
    return id


@pytest.mark.parametrize(
    "make",
    [
        lambda: enqueue(plain_work(a=1, b=2)).id,
        lambda: renamed("shop.tasks.removed"),
        lambda: renamed("antigravity.geohash"),
        pruned,
    ],
    ids=["no task", "removed", "a name that is stored imports nothing", "pruned"],
)
def test_11_27_a_work_that_is_no_task_or_not_any_more_has_no_result(make):
    id = make()
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        kit.add.get_result(id)
    assert registry.find("antigravity.geohash") is None


def test_11_the_result_of_another_task_is_a_mismatch_but_the_backend_gives_it(backend):
    result = kit.echo.enqueue()
    with pytest.raises(exceptions.TaskResultMismatch):
        kit.add.get_result(result.id)
    assert backend.get_result(result.id) == result


def test_12_13_a_result_changes_by_refresh_alone_and_none_is_a_value():
    result, failed = kit.nothing.enqueue(), kit.fail.enqueue()
    drain(raises=False)
    assert result.status == "READY"
    with pytest.raises(ValueError, match="Task has not finished yet"):
        _ = result.return_value
    result.refresh()
    assert (result.status, result.is_finished, result.return_value) == ("SUCCESSFUL", True, None)
    with pytest.raises(AttributeError):
        result.status = "READY"
    failed.refresh()
    with pytest.raises(ValueError, match="Task failed"):
        _ = failed.return_value


@each_database
def test_14_17_22_a_task_between_attempts_is_ready_again_and_each_attempt_leaves_its_traces(sent):
    result = kit.fail_twice.enqueue("drained")
    assert (sent[0][1]["result"], statuses(sent)) == (result, ["READY"])
    drain(limit=1, raises=False)
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == ("READY", 1, 1)
    assert result.finished_at is None
    assert finished(result).status == "SUCCESSFUL"
    moments = [result.enqueued_at, result.started_at, result.last_attempted_at, result.finished_at]
    assert moments == sorted(moments) and result.started_at != result.last_attempted_at
    assert [error.exception_class for error in result.errors] == [LookupError, LookupError]
    assert ["try 1" in result.errors[0].traceback, "try 2" in result.errors[1].traceback] == [True, True]
    assert (result.worker_ids, result.attempts, result.return_value) == (["drain"] * 3, 3, 3)
    assert names(sent) == ["task_enqueued", *["task_started"] * 3, "task_finished"]
    assert statuses(sent)[1:] == [*["RUNNING"] * 3, "SUCCESSFUL"]
    assert sent[-1][1]["result"] == result


def test_14_22_a_cancelled_task_has_failed_with_an_error_and_sends_its_end(sent):
    result = kit.add.enqueue(1)
    cancel(result.id)
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 0)
    assert [each.exception_class.__name__ for each in result.errors] == ["WorkCancelled"]
    drain()
    assert (names(sent)[1:], statuses(sent)[1:]) == (["task_finished"], ["FAILED"])
    assert isinstance(sent[-1][1]["error"], WorkCancelled)


@pytest.mark.parametrize(
    ("task", "path", "text"),
    [
        (kit.fail, "builtins.ValueError", "no luck"),
        (kit.fail_later, "builtins.ValueError", "no luck"),
        (kit.fail_unpicklably, f"{kit.__name__}.Unpicklable", "no luck"),
        (kit.fail_locally, f"{kit.__name__}.fail_locally.<locals>.Local", "no luck"),
        (kit.leave, "builtins.SystemExit", "no luck"),
        (kit.give_up, "django_ayework.errors.Abort", "no luck"),
        (kit.unstorable, "builtins.TypeError", "Unsupported type"),
    ],
    ids=["plain", "async", "unpicklable", "local", "SystemExit", "Abort", "a value that cannot be stored"],
)
def test_16_21_22_an_error_has_its_class_and_traceback_and_is_handled_while_the_end_is_sent(
    sent, task, path, text
):
    result = finished(task.enqueue())
    assert result.status == "FAILED"
    [error] = result.errors
    assert error.exception_class_path == path
    last_line = error.traceback.rstrip().splitlines()[-1]
    assert last_line.startswith(path.removeprefix("builtins.")) and text in last_line
    if "<locals>" in path:
        with pytest.raises(ImportError):
            _ = error.exception_class
    else:
        assert error.exception_class.__qualname__ == path.rpartition(".")[2]
    name, last = sent[-1]
    assert (name, last["result"]) == ("task_finished", result)
    assert f"{type(last['error']).__module__}.{type(last['error']).__qualname__}" == path


@pytest.mark.parametrize("status", ["SUCCESSFUL", "FAILED"])
def test_22_signals_of_an_attempt_that_is_not_kept_in_memory_have_the_stored_result(
    sent, monkeypatch, status
):
    monkeypatch.setattr("django_ayework.contrib.tasks.works.MOST_KEPT", 0)
    result = finished(kit.with_context.enqueue(number=7) if status == "SUCCESSFUL" else kit.fail.enqueue())
    assert (names(sent)[1:], statuses(sent)[1:]) == (["task_started", "task_finished"], ["RUNNING", status])
    assert sent[-1][1]["result"] == result
    assert [error.exception_class for error in result.errors] == [ValueError] * (status == "FAILED")
    assert isinstance(sent[-1][1].get("error"), WorkFailed) is (status == "FAILED")


def test_22_a_task_sends_its_end_if_a_middleware_raises_before_its_function(sent, settings):
    def middleware(ctx, call_next):
        raise ValueError("no entry")

    settings.AYEWORK = {"MIDDLEWARE": [middleware]}
    result = finished(kit.add.enqueue(1))
    assert names(sent)[1:] == ["task_finished"]
    assert sent[-1][1]["result"] == result


@each_database
def test_17_a_failed_task_that_is_retried_counts_from_one_again():
    result = finished(kit.fail.enqueue())
    retry(result.id)
    result.refresh()
    assert (result.status, result.attempts, result.errors, result.started_at) == ("READY", 0, [], None)
    assert (finished(result).attempts, len(result.errors)) == (1, 1)


def test_18_19_the_context_has_the_running_result_and_call_runs_here():
    result = kit.with_context.enqueue(number=7)
    assert finished(result).return_value == [7, 1, result.id, "RUNNING", ["drain"]]
    assert finished(kit.later_with_context.enqueue()).return_value == 1
    assert (kit.add.call(1, b=4), kit.later.call(1)) == (5, 2)
    assert async_to_sync(kit.add.acall)(1) == 2
    assert kit.count() == 2, "a call queues nothing"


@each_database
@pytest.mark.django_db(transaction=True)
def test_20_the_awaitable_forms_work_in_an_event_loop():
    async def act():
        result = await kit.later.aenqueue(1)
        assert await kit.later.aget_result(result.id) == result
        await result.arefresh()
        return result

    assert finished(async_to_sync(act)()).return_value == 2


def test_22_the_loggers_of_the_framework_tell_of_tasks(caplog):
    with caplog.at_level(logging.DEBUG, logger=kit.LOGGER):
        finished(kit.add.enqueue(1))
        finished(kit.fail.enqueue())
    records = [record for record in caplog.records if record.name == kit.LOGGER]
    assert [r.levelname for r in records] == ["DEBUG", "INFO", "INFO", "DEBUG", "INFO", "ERROR"]
    assert [r.exc_info[0] for r in records if r.exc_info] == [ValueError]


def test_22_a_task_runs_whose_backend_the_settings_do_not_name_any_more(settings, sent):
    """Its alias may have been renamed in a deployment, while the task waited."""
    result = kit.add.using(backend="plain").enqueue(1)
    settings.TASKS = {"default": settings.TASKS["default"]}
    drain()
    assert Work.objects.get(id=result.id).status == "success"
    assert {each["sender"] for _, each in sent} == {AyeworkBackend}
    assert names(sent) == ["task_enqueued", "task_started", "task_finished"]


@each_database
def test_5_23_using_copies_and_a_higher_priority_comes_first():
    low, high = kit.add.using(priority=-100, queue_name="q"), kit.add.using(priority=100, queue_name="q")
    assert (high.priority, high.queue_name) == (100, "q")
    assert (kit.add.priority, kit.add.queue_name) == (0, "default")
    assert high.func is kit.add.func
    last, first = low.enqueue(1), high.enqueue(1)
    drain(limit=1)
    last.refresh(), first.refresh()
    assert (last.status, first.status) == ("READY", "SUCCESSFUL")


def test_24_the_system_check_finds_a_missing_app(settings):
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "django_ayework"]
    [error, *_] = framework.task_backends["default"].check()
    assert error.id == "ayework.E012"
    with pytest.raises(ImproperlyConfigured, match=r"TASKS\['default'\] needs the app django_ayework\. Add"):
        kit.add.enqueue(1, 2)


def test_25_tasks_follow_when_the_backend_is_swapped_and_swapped_back(settings):
    ours = settings.TASKS
    settings.TASKS = {"default": {"BACKEND": f"{kit.NAME}.backends.immediate.ImmediateBackend"}}
    assert kit.add.enqueue(1, 2).return_value == 3
    assert kit.count() == 0
    settings.TASKS = ours
    assert finished(kit.add.enqueue(1, 2)).return_value == 3
    assert kit.count() == 1


@pytest.mark.skipif(django.VERSION < (6, 1), reason="pickling is of Django 6.1")
def test_26_a_task_and_its_result_can_be_pickled():
    result = kit.add.using(priority=4, run_after=timedelta(hours=1)).enqueue(1)
    assert pickle.loads(pickle.dumps(result)) == result
    assert pickle.loads(pickle.dumps(result.task)) == result.task


def test_27_a_task_whose_worker_was_lost_for_good_or_that_expires_without_an_attempt_has_failed():
    lost, late = kit.add.enqueue(1), kit.soon.using(run_after=timedelta(hours=2)).enqueue()
    with faults.deliver_twice():
        drain(raises=False)
    time_travel(timedelta(hours=3))
    for result, text in ((lost, "worker lost"), (late, "deadline exceeded")):
        assert str(finished(result).status) == "FAILED"
        assert [each.exception_class for each in result.errors] == [WorkFailed]
        assert text in result.errors[0].traceback
    assert (lost.worker_ids, late.attempts) == ([WORKER], 0)


def test_27_a_task_that_a_person_completes_has_succeeded(sent):
    result = kit.add.enqueue(1)
    complete(result.id, 17)
    result.refresh()
    assert (str(result.status), result.return_value, result.worker_ids) == ("SUCCESSFUL", 17, [])


@pytest.mark.django_db(transaction=True)
def test_a_success_costs_no_query_for_its_signals():
    drain()  # it sets the clock, if that is due
    kit.add.enqueue(1)
    with CaptureQueriesContext(connection) as with_signals:
        drain()
    enqueue(plain_work(a=1, b=2), retry=Retry(attempts=1))
    with CaptureQueriesContext(connection) as plain:
        drain()
    assert len(with_signals) == len(plain)


def test_a_kept_success_counts_as_the_one_attempt_that_it_is():
    result = finished(kit.add.enqueue(1))
    worker = Work.objects.get(id=result.id).completed_by
    AttemptFactory(work_id=result.id, number=1, worker=worker, outcome="success")
    result.refresh()
    assert (result.attempts, result.errors, result.worker_ids) == (1, [], [worker])
