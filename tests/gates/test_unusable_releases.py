"""Releases that cannot be read, stored or run here: what becomes of the gate and the links behind it."""

from __future__ import annotations

import json

import pytest

from django_ayework import NotEncodable, Status, dependency, enqueue, work
from django_ayework.define.registry import registry
from django_ayework.models import Group, Work
from django_ayework.testing import drain
from tests.gates.works import flow, labels, step


def input_with(gate: str, /, **changes) -> str:
    plain = json.loads(Work.objects.get(id=gate).input)
    plain["queue"][0].update(changes)
    return json.dumps(plain)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda gate: "garbage",
        lambda gate: "[]",
        lambda gate: "null",
        lambda gate: '{"queue": 5}',
        lambda gate: '{"queue": [5]}',
        lambda gate: '{"queue": [{}]}',
        lambda gate: input_with(gate, options={"dealy": 5}),
        lambda gate: input_with(gate, options={"priority": "high"}),
        lambda gate: input_with(gate, options={"run_at": "yesterday"}),
        lambda gate: input_with(gate, id=5),
        lambda gate: input_with(gate, id="x" * 100),
        lambda gate: input_with(gate, type=None),
        lambda gate: input_with(gate, type="x" * 300),
        lambda gate: input_with(gate, input={"label": "x"}),
        lambda gate: input_with(gate, input="\x00"),
        lambda gate: input_with(gate, input="\ud800"),
        lambda gate: input_with(gate, gate={"watched": 5}),
    ],
)
def test_a_gate_whose_works_cannot_be_read_dies_alone(spoil):
    gate = enqueue(dependency(["a"], [step(label="x")]))
    Work.objects.filter(id=gate.id).update(input=spoil(gate.id))
    enqueue(step(label="a"), id="a")
    drain()
    assert labels() == ["a"]
    assert (gate.state().status, gate.state().reason) == (Status.DEAD, "bad_input")
    assert gate.group(timeout=1) is None


def test_one_unreadable_work_closes_the_links_behind_its_gate():
    handle = enqueue(flow(links=[["a"], ["b"], ["c"]]))
    drain(limit=1)
    gate = Work.objects.filter(status="blocked").earliest("id")
    plain = json.loads(gate.input)
    plain["queue"][0]["options"] = {"dealy": 1}
    Work.objects.filter(id=gate.id).update(input=json.dumps(plain))
    drain()
    assert labels() == ["a"]
    assert Group.objects.get(id=handle.id).open == 0
    assert sorted(Work.objects.filter(status="dead").values_list("reason", flat=True)) == [
        "bad_input",
        "unsatisfiable",
    ]


def test_a_release_of_a_type_unknown_here_is_queued_all_the_same():
    gate = enqueue(dependency(["a"], [step(label="x")]))
    Work.objects.filter(id=gate.id).update(input=input_with(gate.id, type="gone.work"))
    enqueue(step(label="a"), id="a")
    drain()
    assert gate.state().status is Status.SUCCESS
    assert Work.objects.get(type="gone.work").status == "scheduled"


class Spoilt:
    """A codec whose texts not every database takes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def encode(self, value: object) -> str:
        return self.text

    def decode(self, text: str) -> object:
        return {}


@pytest.mark.parametrize("text", ["\x00", "\ud800"])
def test_what_no_database_takes_is_refused_when_the_gate_is_queued(text: str):
    """Later it would fail the settlement of the work that the gate waits for."""

    @work(name="gates.spoilt", codec=Spoilt(text))
    def spoilt() -> None: ...

    try:
        with pytest.raises(NotEncodable, match=r"gates\.spoilt"):
            enqueue(dependency(["a"], [spoilt()]))
    finally:
        registry.unregister("gates.spoilt")
    assert not Work.objects.exists()
