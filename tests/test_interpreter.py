"""Private parts of CPython, forks, and examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

#: Notes each lock that the package makes, so that a thread can hold them all while the process forks.
FORKING = """
import os, signal, sys, threading

made = []

def noting(make):
    def noted(*arguments):
        lock = make(*arguments)
        if sys._getframe(1).f_globals["__name__"].startswith("django_ayework"):
            made.append(lock)
        return lock
    return noted

threading.Lock, threading.RLock = noting(threading.Lock), noting(threading.RLock)

import django
django.setup()

from django.db import connections
from django_ayework import cancel, enqueue, enqueue_many, pause, resume
from django_ayework.ports.kv import BUILT_IN
from django_ayework.worker.worker import Worker
from tests.app.works import add

def use():
    handle = enqueue(add(a=1, b=2), delay=3600)
    enqueue_many([add(a=1, b=2), add(a=1, b=3)], queue="nobody")
    enqueue(add(a=1, b=2), queue="nobody")
    BUILT_IN["local"].set("key", "value")
    pause(queue="nobody")
    resume(queue="nobody")
    cancel(handle.id)

use()  # a fork copies the lock of a module that another thread is importing, and CPython never frees the copy
worker = Worker()
if "beside-a-worker" in sys.argv:
    worker.__enter__()
connections.close_all()
held, over = threading.Event(), threading.Event()

def hold():
    taken = [lock for lock in made if lock.acquire(timeout=0.5)]  # some are never free
    held.set()
    over.wait()
    for lock in taken:
        lock.release()

threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    use()
    os._exit(0)
over.set()  # a thread of the worker may wait for a lock within a transaction, and the child for its database
status = os.waitpid(child, 0)[1]
print(len(made), status, flush=True)
os._exit(0)
"""
NO_FORK = """
import os
del os.fork, os.register_at_fork

import django, importlib, pkgutil
django.setup()

import django_ayework
from django.test.utils import setup_test_environment

for module in pkgutil.walk_packages(django_ayework.__path__, "django_ayework."):
    if ".supervisor" not in module.name and "_worker" not in module.name:
        importlib.import_module(module.name)
print("imported")
"""
PURE = ("errors", "rules", "define", "doers", "hooks", "ports.kv")


def modules() -> Iterator[str]:
    for name in (f"django_ayework.{each}" for each in PURE):
        yield name
        if path := getattr(importlib.import_module(name), "__path__", None):
            yield from (info.name for info in pkgutil.walk_packages(path, f"{name}."))


def output_of(source: str, env: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", source, *arguments]
    process = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, timeout=100)
    assert process.returncode == 0
    return process.stdout.strip()


#: SQLite's library has a lock of its own, which a fork copies as a thread of the worker holds it.
BESIDE_A_WORKER = pytest.param("beside-a-worker", marks=pytest.mark.vendors("postgresql", "mysql"))


@pytest.mark.parametrize(
    "beside", [pytest.param("alone", marks=pytest.mark.vendors("sqlite")), BESIDE_A_WORKER]
)
def test_a_forked_process_waits_for_no_thread_of_its_parent(process_env: dict[str, str], beside: str) -> None:
    made, status = output_of(FORKING, process_env, beside).split()
    assert int(made) > 5
    assert status == "0"


@pytest.mark.vendors("sqlite")
def test_the_package_is_imported_where_no_process_can_fork(process_env: dict[str, str]) -> None:
    env = process_env | {"DJANGO_SETTINGS_MODULE": "tests.settings"}  # with the admin
    assert output_of(NO_FORK, env) == "imported"


@pytest.mark.parametrize("name", list(modules()))
def test_examples_in_docstrings(name):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.testmod(importlib.import_module(name), optionflags=flags).failed == 0
