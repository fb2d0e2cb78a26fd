"""Tasks with real workers: in this process, and in one that has imported no task."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest
from django.db import transaction

from django_ayework import cancel, registry
from django_ayework.testing import running_worker
from tests.processes import ended, eventually, worker_process
from tests.tasks import kit
from tests.tasks.kit import exceptions

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick_polls")]


def finished(*results: Any) -> None:
    def are_finished() -> bool:
        for result in results:
            result.refresh()
        return all(result.is_finished for result in results)

    eventually(are_finished)


def test_a_worker_runs_plain_and_async_tasks_with_and_without_context(sent):
    results = [
        kit.add.enqueue(1, b=2),
        kit.later.enqueue(1),
        kit.with_context.enqueue(number=3),
        kit.later_with_context.enqueue(),
        kit.fail.enqueue(),
        kit.fail_later.enqueue(),
        kit.leave.enqueue(),
    ]
    with running_worker(concurrency=2) as worker:
        finished(*results)
        eventually(lambda: [name for name, _ in sent].count("task_finished") == len(results))
    assert [each.return_value for each in results[:2]] == [3, 2]
    assert results[2].return_value == [3, 1, results[2].id, "RUNNING", [worker.id]]
    assert results[3].return_value == 1
    assert [str(each.status) for each in results[4:]] == ["FAILED"] * 3
    assert [each.errors[0].exception_class for each in results[4:]] == [ValueError, ValueError, SystemExit]
    assert {tuple(each.worker_ids) for each in results} == {(worker.id,)}
    ends = {each["result"].id: each for name, each in sent if name == "task_finished"}
    assert all(ends[each.id]["result"] == each for each in results)
    assert [type(ends[each.id]["error"]) for each in results[4:]] == [ValueError, ValueError, SystemExit]


def test_a_timeout_ends_a_coroutine_for_real():
    result = kit.sleep_long.enqueue()
    with running_worker(concurrency=1):
        finished(result)
    assert str(result.status) == "FAILED"
    assert [each.exception_class.__name__ for each in result.errors] == ["AttemptTimeout"]


def test_a_task_that_is_cancelled_while_it_runs_has_the_worker_of_its_attempt():
    result = kit.wait_for_cancel.enqueue()
    with running_worker(concurrency=1) as worker:
        eventually(lambda: kit.wait_for_cancel.get_result(result.id).status == "RUNNING")
        cancel(result.id)
        finished(result)
    assert str(result.status) == "FAILED"
    assert (result.worker_ids, result.attempts) == ([worker.id], 1)
    assert [each.exception_class.__name__ for each in result.errors] == ["WorkCancelled"]


def test_a_task_is_tried_again_as_its_options_say():
    result = kit.fail_twice.enqueue("worker")
    with running_worker(concurrency=1) as worker:
        finished(result)
    assert (result.return_value, result.worker_ids) == (3, [worker.id] * 3)


def test_a_rolled_back_savepoint_leaves_nothing_of_its_tasks():
    with transaction.atomic():
        kept = kit.add.enqueue(1)
        with pytest.raises(LookupError), transaction.atomic():
            undone = kit.add.enqueue(2)
            raise LookupError
    with running_worker(concurrency=1):
        finished(kept)
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        undone.refresh()


FOUND = f"""
    from {kit.NAME} import task

    @task
    def double(number):
        return 2 * number
"""
BROKEN = f"""
    from {kit.NAME} import task
    import no_such_module
"""


@pytest.fixture
def project(tmp_path, monkeypatch) -> Any:
    """An app with a task in its depth, a module with a mistake, and settings that use the backend."""
    app = tmp_path / "found_app"
    (app / "deep").mkdir(parents=True)
    for file in ("__init__.py", "deep/__init__.py"):
        (app / file).touch()
    (app / "deep" / "runner.py").write_text(textwrap.dedent(FOUND))
    (app / "broken.py").write_text(textwrap.dedent(BROKEN))
    (tmp_path / "outside.py").write_text(textwrap.dedent(FOUND))
    (tmp_path / "task_settings.py").write_text(
        textwrap.dedent(
            """
            from tests.settings import *

            INSTALLED_APPS = [*INSTALLED_APPS, "found_app"]
            BACKEND = "django_ayework.contrib.tasks.AyeworkBackend"
            TASKS = {"default": {"BACKEND": BACKEND, "OPTIONS": {"MODULES": ["outside"]}}}
            AYEWORK = {"UNKNOWN_TYPE_GRACE": 0}
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_worker_process_knows_tasks_that_nothing_imported_by_their_source(project, process_env):
    from importlib import import_module

    tasks = [import_module(name).double for name in ("found_app.deep.runner", "outside")]
    results = [task.enqueue(number) for number, task in enumerate(tasks, 1)]
    path = f"{project}:{process_env.get('PYTHONPATH', '')}"
    env = process_env | {"PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "task_settings"}
    with worker_process(env, "--burst") as process:
        status, output = ended(process)
    for result in results:
        result.refresh()
    assert status == 0, output
    assert [each.return_value for each in results] == [2, 4], output
    assert "found_app.broken" in output


@pytest.mark.parametrize("look", ["get('found_app.deep.runner.double').name", "names()"])
def test_a_process_that_has_imported_no_task_finds_it_by_its_name_and_among_all(
    project, process_env, look: str
) -> None:
    """Pausing, limits, forms and lists of the admin ask for types in these two ways."""
    script = f"import django; django.setup(); from django_ayework import registry; print(registry.{look})"
    path = f"{project}:{process_env.get('PYTHONPATH', '')}"
    env = process_env | {"PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "task_settings"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert "found_app.deep.runner.double" in done.stdout, done.stderr


def test_the_check_of_a_worker_names_a_module_whose_tasks_are_not_known(project, process_env) -> None:
    path = f"{project}:{process_env.get('PYTHONPATH', '')}"
    env = process_env | {"PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "task_settings"}
    with worker_process(env, "--check") as process:
        status, output = ended(process)
    assert status == 1
    assert "problem  the module found_app.broken, which declares tasks, could not be imported:" in output


def test_a_stored_name_imports_nothing(process_env, project):
    from django_ayework.models import Work

    result = kit.add.enqueue(1)
    Work.objects.filter(id=result.id).update(type="antigravity.geohash")
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        kit.add.get_result(result.id)
    assert registry.find("antigravity.geohash") is None
    Work.objects.all().delete()
