"""Real threads and processes, in many rounds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.fixtures import always_consistent  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]
#: Whether to run the races in full, as ``make races`` does; ``make test`` runs fewer rounds, a multiple of 4.
FULL = os.environ.get("AYEWORK_RACES") == "full"
ROUNDS = 200 if FULL else 12


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.races)


@pytest.fixture
def env(process_env: dict[str, str]) -> dict[str, str]:
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.worker.settings_patient"}


@pytest.fixture(scope="session")
def rivals(django_db_setup: None) -> Iterator[Any]:
    """Processes that race, as many as a test has wanted so far."""
    from tests.races.rival_processes import Rivals

    rivals = Rivals()
    yield rivals
    rivals.close()


@pytest.fixture(params=[pytest.param("threads", marks=pytest.mark.vendors("sqlite")), "processes"])
def raced(request: pytest.FixtureRequest, env: dict[str, str], rivals: Any) -> Callable[..., list[list[Any]]]:
    """Let rivals carry out acts that are given by name; return their answers.

    For a server their sessions are the same. SQLite locks for a process.
    """
    from tests.races.rival_processes import race_threads

    return race_threads if request.param == "threads" else partial(rivals.race, env)
