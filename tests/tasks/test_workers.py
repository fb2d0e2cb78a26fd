"""Tasks with real workers: in this process, and in one that has imported no task."""

import subprocess
import sys
from importlib import import_module

import pytest

from django_ayework import cancel
from django_ayework.testing import running_worker
from tests.marks import each_database
from tests.processes import ended, eventually, worker_process
from tests.tasks import kit

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("quick_polls"),
    pytest.mark.vendors("sqlite"),
]


@each_database
def test_a_worker_runs_plain_and_async_tasks_with_and_without_context(sent):
    results = [
        kit.add.enqueue(1, b=2),
        kit.later.enqueue(a=1),
        kit.with_context.enqueue(number=3),
        kit.later_with_context.enqueue(),
        kit.fail_twice.enqueue("worker"),
        kit.fail.enqueue(),
        kit.fail_later.enqueue(),
        kit.leave.enqueue(),
        kit.sleep_long.enqueue(),
        kit.wait_for_cancel.enqueue(),
    ]
    succeeded, failed = results[:5], results[5:]
    with running_worker(concurrency=3) as worker:
        eventually(lambda: kit.wait_for_cancel.get_result(results[-1].id).status == "RUNNING")
        cancel(results[-1].id)
        eventually(lambda: [name for name, _ in sent].count("task_finished") == len(results))
    for result in results:
        result.refresh()
    context = [3, 1, results[2].id, "RUNNING", [worker.id]]
    assert [each.return_value for each in succeeded] == [3, 2, context, 1, 3]
    assert [str(each.status) for each in failed] == ["FAILED"] * 5
    errors = ["ValueError", "ValueError", "SystemExit", "AttemptTimeout", "WorkCancelled"]
    assert [[each.exception_class.__name__ for each in result.errors] for result in failed] == [
        [error] for error in errors
    ]
    assert [each.worker_ids for each in results] == [[worker.id] * (3 if n == 4 else 1) for n in range(10)]
    ends = {each["result"].id: each for name, each in sent if name == "task_finished"}
    assert all(ends[each.id]["result"] == each for each in results)
    assert [type(ends[each.id]["error"]).__name__ for each in failed[:3]] == errors[:3]


FOUND = f"""
from {kit.NAME} import task

@task
def double(number):
    return 2 * number
"""
FILES = {
    "found_app/__init__.py": "",
    "found_app/deep/__init__.py": "",
    "found_app/deep/runner.py": FOUND,
    "found_app/broken.py": f"from {kit.NAME} import task\nimport no_such_module\n",
    "outside.py": FOUND,
    "task_settings.py": """
from tests.settings_process import *

INSTALLED_APPS = [*INSTALLED_APPS, "found_app"]
BACKEND = "django_ayework.contrib.tasks.AyeworkBackend"
OPTIONS = {"MODULES": ["outside"]}
TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": OPTIONS}}
AYEWORK = {"UNKNOWN_TYPE_GRACE": 0}
""",
}


@pytest.fixture
def env(tmp_path, monkeypatch, process_env):
    """Of a project that has an app with a task in its depth and a module with a mistake."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = f"{tmp_path}:{process_env.get('PYTHONPATH', '')}"
    return process_env | {"PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "task_settings"}


def test_a_worker_process_knows_tasks_that_nothing_imported_by_their_source(env):
    tasks = [import_module(name).double for name in ("found_app.deep.runner", "outside")]
    results = [task.enqueue(number) for number, task in enumerate(tasks, 1)]
    with worker_process(env, "--burst") as process:
        status, output = ended(process)
    for result in results:
        result.refresh()
    assert status == 0, output
    assert [each.return_value for each in results] == [2, 4], output
    assert "found_app.broken" in output


#: Asks in each way in a process that has not asked before.
ASK = """
import os
import django
from django_ayework import registry

django.setup()
if os.fork() == 0:
    print(registry.get("found_app.deep.runner.double").name)
else:
    os.wait()
    print(*registry.names(), sep="\\n")
"""


def test_a_process_that_has_imported_no_task_finds_it_by_its_name_and_among_all(env):
    """Pausing, limits, forms and lists of the admin ask for types in these two ways."""
    done = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines().count("found_app.deep.runner.double") == 2, done.stderr


#: What the pages of metrics, and the form of an input in the admin, ask in a process of its own.
LABEL = """
import django
django.setup()
from django_ayework.contrib.prometheus.series import type_label
print(type_label("found_app.deep.runner.double"))
"""


def test_metrics_of_a_process_that_has_imported_no_task_have_its_name(env):
    done = subprocess.run([sys.executable, "-c", LABEL], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout == "found_app.deep.runner.double\n", done.stderr


def test_the_queues_of_tasks_are_known_before_a_deployment(env):
    with worker_process(env, "--check", "--queues", "mial") as process:
        assert "problem  no type of work uses the queue 'mial'. Did you mean 'mail'?" in ended(process)[1]
    import_module("outside").double.using(queue_name="mail").enqueue(1)
    for queues, said in (
        ([], "Everything fits"),
        (["--queues", "default"], "not among those that workers will serve"),
    ):
        command = [sys.executable, "-m", "django", "ayework_predeploy", *queues]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert said in done.stdout, done.stdout + done.stderr


def test_the_check_of_a_worker_names_a_module_whose_tasks_are_not_known(env):
    with worker_process(env, "--check") as process:
        status, output = ended(process)
    assert status == 1
    assert "problem  the module found_app.broken, which declares tasks, could not be imported:" in output
