"""Real workers, in this process and in others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.conf import settings

from tests.fixtures import always_consistent, fresh_stage, quick_polls, reported, undeclared  # noqa: F401

DEFAULT_PORTS = {"postgresql": 5432, "mysql": 3306}
collect_ignore_glob = [] if settings.configured else ["test_*.py"]
stage = fresh_stage("tests.worker.works")


@pytest.fixture
def patient_env(process_env: dict[str, str]) -> dict[str, str]:
    """The environment of worker processes that let works end."""
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.worker.settings_patient"}


@pytest.fixture
def short_lease_env(process_env: dict[str, str]) -> dict[str, str]:
    """The environment of worker processes whose leases lapse soon."""
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.worker.settings_short_lease"}


@pytest.fixture
def proxy(transactional_db: None) -> Iterator[object]:
    """A proxy before the test database; whoever uses ``cut_off_env`` goes through it."""
    from django.db import connection

    from tests.proxies import Proxy

    config = connection.settings_dict
    if str(config.get("HOST", "")).startswith("/"):
        pytest.skip("the database is reached through a file")
    port = int(config["PORT"] or DEFAULT_PORTS[connection.vendor])
    with Proxy(config["HOST"] or "127.0.0.1", port) as proxy:
        yield proxy


@pytest.fixture
def cut_off_env(process_env: dict[str, str], proxy: object) -> dict[str, str]:
    """The environment of worker processes that go through the proxy."""
    from django.db import connection

    from tests.databases import database_url

    config = connection.settings_dict | {"HOST": "127.0.0.1", "PORT": proxy.port}  # type: ignore[attr-defined]
    settings_of_them = {"DJANGO_SETTINGS_MODULE": "tests.worker.settings_cut_off"}
    return process_env | settings_of_them | {"DATABASE_URL": database_url(config)}


@pytest.fixture
def claimer() -> object:
    """The claims of a worker that serves everything."""
    from tests.claiming import claimer_of

    return claimer_of()


@contextmanager
def while_it_runs(request: Any, workers: int = 1, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Run a work until it has started; yield its handle and a worker; then let it end, and wait for that."""
    from django_ayework import enqueue
    from django_ayework.testing import running_worker
    from tests.processes import eventually
    from tests.worker import works

    handle = enqueue(request)
    with ExitStack() as stack:
        worker, *_ = [stack.enter_context(running_worker(**options)) for _ in range(workers)]
        eventually(lambda: works.stage.started)
        yield handle, worker
        works.stage.go.set()
        eventually(lambda: handle.state().ended_at)


def all_end(handles: Any) -> None:
    """Wait for the success of works."""
    for handle in handles:
        handle.result(timeout=20)


class Flaky:
    """Raises a few times, then does what it stands for."""

    def __init__(self, act, times: int, error: Exception | None = None) -> None:
        from django.db import OperationalError

        self.act, self.left = act, times
        self.error = error or OperationalError("server closed the connection unexpectedly")

    def __call__(self, *args, **kwargs):
        if self.left:
            self.left -= 1
            raise self.error
        return self.act(*args, **kwargs)


def greedy(max_works: int | None = None) -> Any:
    """A worker that holds more works than it has slots, as it does while works are quick."""
    from django_ayework.worker.worker import Worker

    worker = Worker(concurrency=1, max_works=max_works)
    worker._prefetch.measure = lambda finished: None
    worker._prefetch.rate = 50.0
    return worker
