"""Private and undocumented parts of CPython, asgiref, Django and its drivers, each behind one function.

Every comment names the versions against which the part was checked; ``tests/test_compat.py`` has a test per
part. Django is imported where it is used, as parts of the package that know nothing of it import this module.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asgiref.sync import ThreadSensitiveContext
    from django.db.backends.base.base import BaseDatabaseWrapper


def after_fork_in_child(callback: Callable[[], object]) -> None:
    """Call this in each forked child, before anything else runs there: locks may be held, threads are gone.

    Systems without fork never call it.
    """
    # CPython 3.11 to 3.14: documented, but missing on Windows.
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)


def before_threads_end(callback: Callable[[], object]) -> None:
    """Call this when the interpreter ends, while threads can still be started and executors still work."""
    # CPython 3.11 to 3.14: threading._register_atexit, which concurrent.futures uses to end its own threads.
    # The list is gone through backwards; atexit comes after that.
    getattr(threading, "_register_atexit", atexit.register)(callback)


def has_thread(context: ThreadSensitiveContext) -> bool:
    """Tell whether ``sync_to_async`` has started a thread in this context."""
    # asgiref 3.8 to 3.13: the executors of contexts, which a context removes when it ends.
    from asgiref.sync import SyncToAsync

    return context in SyncToAsync.context_to_thread_executor


def this_command() -> list[str]:
    """Return the command line by which this process was started, to run it once more."""
    # Django 5.2 to 6.1: undocumented, used by its own autoreloader.
    from django.utils.autoreload import get_child_arguments

    return [str(argument) for argument in get_child_arguments()]


#: The exit status by which a process of Django's autoreloader asks to be started again (Django 5.2 to 6.1).
CHANGED = 3


def is_reloaded() -> bool:
    """Tell whether Django's autoreloader has started this process, rather than is about to start one."""
    # Django 5.2 to 6.1: undocumented name of an environment variable.
    from django.utils.autoreload import DJANGO_AUTORELOAD_ENV

    return os.environ.get(DJANGO_AUTORELOAD_ENV) == "true"


def environment_of_reloaded() -> dict[str, str]:
    """Return the environment of a process that the autoreloader starts."""
    # Django 5.2 to 6.1: see is_reloaded().
    from django.utils.autoreload import DJANGO_AUTORELOAD_ENV

    return {**os.environ, DJANGO_AUTORELOAD_ENV: "true"}


def run_until_changed(act: Callable[[], object]) -> None:
    """Do this in a thread; end the process with the status ``CHANGED`` when code has changed."""
    # Django 5.2 to 6.1: undocumented, used by runserver. It installs a handler of SIGTERM.
    from django.utils.autoreload import run_with_reloader

    run_with_reloader(act)


def close_pool(connection: BaseDatabaseWrapper) -> None:
    """Close the pool that a connection comes from, if Django keeps one for it."""
    # Django 5.2 to 6.1: DatabaseWrapper.close_pool of PostgreSQL's backend, undocumented.
    backend: Any = connection
    if connection.settings_dict.get("OPTIONS", {}).get("pool"):
        backend.close_pool()
