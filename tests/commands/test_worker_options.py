"""The options of ``ayework_worker`` that are refused, and those that reach the worker."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

import pytest
from django.core.management.base import CommandError

from django_ayework.management.worker_options import WorkerOptions, add_worker_options, worker_options


def read(*arguments: str) -> WorkerOptions:
    """Read a command line."""
    parser = ArgumentParser()
    add_worker_options(parser)  # type: ignore[arg-type]
    return worker_options(vars(parser.parse_args(arguments)))


@pytest.mark.parametrize("option", ["--concurrency", "--processes", "--max-works", "--max-memory"])
@pytest.mark.parametrize("value", ["0", "-3"])
def test_numbers_that_make_no_sense_are_refused(option: str, value: str) -> None:
    with pytest.raises(CommandError, match=f"expected {option} to be 1 or more, got: {value}."):
        read(option, value)


@pytest.mark.parametrize("option", ["--types", "--exclude-types"])
def test_a_type_that_nobody_knows_is_refused_with_the_nearest_name(option: str) -> None:
    with pytest.raises(CommandError, match=r"no work is named 'shop.ad'. Did you mean 'shop.add'\?"):
        read(option, "shop.notify, shop.ad")


def test_types_that_are_all_excluded_are_refused() -> None:
    with pytest.raises(CommandError, match="expected --exclude-types to leave some of --types"):
        read("--types", "shop.add", "--exclude-types", "shop.add,shop.notify")


@pytest.mark.parametrize(
    ("others", "named"),
    [
        (["--burst"], "--burst"),
        (["--max-works", "5", "--max-memory", "500"], "--max-works, --max-memory"),
        (["--processes", "2"], "--processes"),
    ],
)
def test_a_worker_that_starts_anew_by_itself_does_so_alone(others: list[str], named: str) -> None:
    with pytest.raises(CommandError, match=f"expected --reload without {named}: it is for development."):
        read("--reload", *others)


def test_a_name_must_fit_with_the_number_of_its_process() -> None:
    assert read("--name", "x" * 64).name == "x" * 64
    assert read("--name", "x" * 61, "--processes", "10").name == "x" * 61
    with pytest.raises(CommandError, match="expected --name to have at most 61 characters, got: 62"):
        read("--name", "x" * 62, "--processes", "10")


def test_options_reach_the_worker() -> None:
    worker = read(
        "--queues", "mail, fax,", "--types", "shop.add,shop.notify", "--exclude-types", "shop.notify",
        "--concurrency", "3", "--name", "night", "--burst", "--max-works", "7", "--max-memory", "300",
    ).worker(place=2)  # fmt: skip
    assert (worker.queues, worker.types) == (("mail", "fax"), ("shop.add", "shop.notify"))
    assert worker.exclude_types == ("shop.notify",)
    assert (worker.concurrency, worker.name, worker.burst) == (3, "night-2", True)
    assert (worker._limits.max_works, worker._limits.max_memory) == (7, 300)


def test_by_default_there_is_one_worker_for_everything(settings: Any) -> None:
    settings.AYEWORK = {"CONCURRENCY": 5}
    chosen = read()
    worker = chosen.worker()
    assert chosen.processes == 1
    assert (worker.queues, worker.types, worker.exclude_types, worker.name) == ((), (), (), "")
    assert worker.concurrency == 5
    assert worker._fires_schedules
    assert not read("--no-scheduler").worker()._fires_schedules
