"""A new project, written from the documentation of Django alone, that names our backend in ``TASKS``."""

import os
import subprocess
import sys

import pytest
from django.core.management import call_command

from tests.tasks.kit import NAME

TASKS = """
from django.db import transaction

from {framework} import task


@task
def greet(addresses, subject):
    return f"{{subject}} {{' '.join(addresses)}}"


@task(priority=2, queue_name="reports", takes_context=True)
def count(context, numbers):
    return [sum(numbers), context.attempt]


@task()
async def later(text):
    return text.upper()


@task
def refuse(order):
    raise ValueError(f"order {{order}} is closed")


def after_commit(found):
    with transaction.atomic():
        transaction.on_commit(lambda: found.append(greet.enqueue(["bob"], subject="Later")))
"""
SETTINGS = """
INSTALLED_APPS += ["django_ayework", "news"]
TASKS = {
    "default": {
        "BACKEND": "django_ayework.contrib.tasks.AyeworkBackend",
        "QUEUES": ["default", "reports"],
        "OPTIONS": {"RETRY": {"attempts": 1}},
    }
}
"""
ENQUEUE = """
import asyncio
from django.core.management import call_command
from news.tasks import after_commit, count, greet, later, refuse

call_command("migrate", verbosity=0)
results = [
    greet.enqueue(addresses=["ann"], subject="Now"),
    count.using(priority=10).enqueue([1, 2, 3]),
    asyncio.run(later.aenqueue("text")),
    refuse.enqueue(7),
]
after_commit(results)
print(*(result.id for result in results))
"""
LOOK = """
from django.core.management import call_command
from {framework} import TaskResultStatus, default_task_backend

call_command("ayework_worker", "--burst", stdout=open("worker.log", "w"))
results = [default_task_backend.get_result(id) for id in {ids!r}]
for result in results:
    assert result.is_finished, result.status
    if result.status == TaskResultStatus.SUCCESSFUL:
        print(result.task.name, result.return_value, result.attempts)
    else:
        print(result.task.name, result.errors[-1].exception_class_path, len(result.errors))
"""


@pytest.mark.vendors("sqlite")
def test_a_project_written_from_the_documentation_of_django_runs(tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO", "DATABASE"))}

    def manage(*arguments):
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "news").mkdir()
    call_command("startproject", "site_of_news", str(tmp_path))
    call_command("startapp", "news", str(tmp_path / "news"))
    (tmp_path / "news" / "tasks.py").write_text(TASKS.format(framework=NAME))
    with (tmp_path / "site_of_news" / "settings.py").open("a") as settings:
        settings.write(SETTINGS)
    ids = manage("shell", "-v0", "-c", ENQUEUE).split()
    printed = manage("shell", "-v0", "-c", LOOK.format(framework=NAME, ids=ids))
    assert printed.splitlines() == [
        "greet Now ann 1",
        "count [6, 1] 1",
        "later TEXT 1",
        "refuse builtins.ValueError 1",
        "greet Later bob 1",
    ]
