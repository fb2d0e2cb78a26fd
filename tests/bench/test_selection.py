"""What ``make bench FIGURES="…"`` takes."""

import importlib.util

import pytest

from bench.peers.phases import PHASES
from bench.selection import ON_ALL_DATABASES, ON_EACH_DATABASE, select


def test_without_names_it_is_everything():
    selection = select([])

    assert (selection.on_each, selection.on_all) == (ON_EACH_DATABASE, ON_ALL_DATABASES)
    assert (len(selection.phases), selection.with_peers) == (len(PHASES), True)


@pytest.mark.parametrize(
    ("names", "phases", "with_peers"),
    [
        (["drain"], ("drain",), False),
        (["latency", "enqueue"], ("enqueue-one", "enqueue-many", "latency"), False),
        (["drain", "peers"], ("drain",), True),
        (["peers"], tuple(phase.name for phase in PHASES), True),
        (["memory"], (), False),
    ],
)
def test_phases_are_taken_with_peers_when_these_are_named(names, phases, with_peers):
    selection = select(names)

    assert (selection.phases, selection.with_peers) == (phases, with_peers)


def test_other_measurements_run_by_their_names():
    selection = select(["memory", "retained"])

    assert (selection.on_each, selection.on_all, selection.phases) == (("memory",), ("retained",), ())


def test_an_unknown_name_is_told_with_those_that_are_known():
    with pytest.raises(SystemExit, match=r"drain-two.*churn; got: drian"):
        select(["drian"])


@pytest.mark.parametrize("name", [*ON_EACH_DATABASE, *ON_ALL_DATABASES])
def test_every_name_is_a_module(name):
    assert importlib.util.find_spec(f"bench.{name}")
