"""What a gate releases, the parent and the group of it, and what it had waited for."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, NotEncodable, Retry, dependency, enqueue_many, get_handle, retry, work
from django_ayework.api import enqueue
from django_ayework.models import Edge, Group, Waiter, Work
from django_ayework.testing import drain, running_worker, time_travel
from tests.app.models import Order
from tests.app.works import add
from tests.gates.works import BROKEN, RAN, flow, labels, run, standing, step
from tests.marks import on_sqlite
from tests.processes import eventually

OPEN, BLOCKED = ("success", None), ("blocked", None)


@work(name="gates.late_step", options=lambda label: {"delay": 60})
def late_step(ctx: Context, label: str):
    RAN.append((label, ctx.dependents))


def queue_all(handler: Any) -> Any:
    """Queue a work with this handler, and run all that is due; return its handle."""
    handle = enqueue(work(name="gates.declared")(handler)())
    drain()
    return handle


def test_released_works_have_the_gate_as_parent_and_what_it_waited_for_in_order():
    members = [step(label=label) for label in "cab"]
    gate = enqueue(dependency(members, [step(label="x"), step(label="y")]))
    for member in sorted(members, key=lambda member: member.id, reverse=True):
        enqueue(member)
    drain()
    ids = tuple(member.id for member in members)
    assert [entry for entry in RAN if entry[0] in "xy"] == [("x", ids), ("y", ids)]
    released = Work.objects.filter(parent_id=gate.id)
    assert {work.group_id for work in released} == {gate.id}
    assert {get_handle(work.id).state().dependents for work in released} == {ids}


def test_links_run_one_after_the_other():
    handle = enqueue(flow(links=[["a1", "a2"], ["b1", "b2"], ["c"]]))
    drain()
    ran = labels()
    assert (sorted(ran[:2]), sorted(ran[2:4]), ran[4:]) == (["a1", "a2"], ["b1", "b2"], ["c"])
    assert [dependents for _, dependents in RAN[:2]] == [(), ()]
    group = Group.objects.get(id=handle.id)
    assert (group.open, group.total, group.dead) == (0, 1 + 5 + 2, 0)


def test_a_link_waits_for_works_of_nested_instructions_too_and_not_for_grandchildren():
    def nested(ctx: Context):
        inner = ctx.queue([step(label="inner")]).next([step(label="inner-next")])
        return ctx.queue([step(label="a"), inner]).next([step(label="last")])

    queue_all(nested)
    ran = labels()
    assert ran[-1] == "last"
    assert ran.index("inner") < ran.index("inner-next") < ran.index("last")
    parent_of = work(name="gates.parent_of")(lambda ctx: ctx.queue([step(label="grandchild")], delay=3600))
    handle = queue_all(lambda ctx: ctx.queue([parent_of()]).next([step(label="next")]))
    assert labels()[4:] == ["next"]
    assert Group.objects.get(id=handle.id).open == 1


def test_options_of_a_link_apply_to_its_works():
    def with_options(ctx: Context):
        first = ctx.queue([step(label="a")], priority=2)
        options = {"priority": 7, "retry": Retry(attempts=9), "queue": "slow", "about": Order(pk=8)}
        return first.next([step(label="next")], **options)

    queue_all(with_options)
    follower = Work.objects.get(queue="slow")
    assert (follower.priority, follower.about_type, follower.about_id) == (7, "shop.order", "8")
    assert get_handle(follower.id).state().retry.attempts == 9
    assert labels() == ["a", "next"]


def test_a_delayed_release_starts_its_delay_when_the_gate_opens():
    gate = enqueue(dependency(["a"], [late_step(label="after")]))
    time_travel(3600)
    run("a")
    released = Work.objects.get(parent_id=gate.id)
    assert released.queued_at == gate.state().ended_at
    assert released.run_at == released.queued_at + timedelta(seconds=60)
    assert labels() == ["a"]
    time_travel(61)
    drain()
    assert RAN[-1] == ("after", ("a",))


def test_a_gate_can_release_gates_which_keep_their_conditions_and_timeouts():
    BROKEN.add("broken")
    run("early")
    late = step(label="late")
    nested = [
        dependency([late], [step(label="innermost")]),
        dependency([], [step(label="at once")]),
        dependency(["early"], [step(label="after early")]),
        dependency(["broken", "b"], [step(label="all done")], "all-done", timeout=60),
        dependency(["c"], [step(label="never")], timeout=60),
    ]
    outer = enqueue(dependency(["a"], [step(label="x"), *nested]))
    run("a")
    assert sorted(labels()) == ["a", "after early", "at once", "early", "x"]
    assert standing(get_handle(nested[0].id)) == BLOCKED
    enqueue(late)
    run("broken", "b")
    assert sorted(labels()[-4:]) == ["all done", "b", "innermost", "late"]
    time_travel(61)
    drain()
    assert standing(get_handle(nested[-1].id)) == ("dead", "expired")
    assert Group.objects.get(id=outer.id).total == 11


def test_one_gate_queued_twice_is_one_gate():
    gate = dependency(["a"], [step(label="after")])
    assert [enqueue(gate).deduplicated, enqueue(gate).deduplicated] == [False, True]
    assert (Waiter.objects.count(), Edge.objects.count()) == (1, 1)
    run("a")
    assert enqueue(gate).deduplicated
    drain()
    assert labels() == ["a", "after"]


def test_one_work_released_by_two_gates_or_queued_before_runs_once_and_links_after_it_go_on():
    shared = step(label="shared")
    gates = [enqueue(dependency(["a"], [shared])) for _ in range(2)]
    run("a")
    assert labels() == ["a", "shared"]
    assert {standing(gate) for gate in gates} == {OPEN}
    handle = queue_all(lambda ctx: ctx.queue([step(label="b")]).next([shared]).next([step(label="last")]))
    assert labels() == ["a", "shared", "b", "last"]
    assert Group.objects.get(id=handle.id).open == 0


def test_the_end_and_the_revival_of_a_gate_do_not_count_for_a_work_that_was_queued_by_itself():
    BROKEN.add("a")
    mine = step(label="mine")
    other = enqueue(dependency([mine, "z"], [step(label="after")]))
    enqueue(mine)
    gate = enqueue(dependency(["a"], [mine]))
    enqueue(step(label="a"), id="a", priority=9)
    drain(limit=1)
    assert (standing(gate), standing(other)) == (("dead", "unsatisfiable"), BLOCKED)
    drain()
    BROKEN.clear()
    retry("a")
    run("z")
    assert standing(other) == OPEN
    assert labels() == ["mine", "a", "z", "after"]


# --- releases that cannot be read, stored or run here ---------------------------------------------------


#: Inputs of gates, and changes of the works in them, that cannot be read.
SPOILT: list[Any] = [
    *("garbage", "[]", '{"queue": 5}', '{"queue": [5]}', '{"queue": [{}]}'),
    *({"options": options} for options in ({"dealy": 5}, {"priority": "high"}, {"run_at": "yesterday"})),
    *({"id": 5}, {"id": "x" * 100}, {"type": None}, {"type": "x" * 300}),
    *({"input": {"label": "x"}}, {"gate": {"watched": 5}}),
]
#: What a database would refuse.
UNFIT: list[Any] = [{"input": "\x00"}, {"input": "\ud800"}]


def spoil(gate: str, spoilt: Any) -> None:
    row = Work.objects.get(id=gate)
    if isinstance(spoilt, str):
        row.input = spoilt
    else:
        plain = json.loads(row.input)
        plain["queue"][0].update(spoilt)
        row.input = json.dumps(plain)
    row.save()


@pytest.mark.parametrize("spoilt", [*(pytest.param(one, marks=on_sqlite) for one in SPOILT), *UNFIT])
def test_a_gate_whose_works_cannot_be_read_dies_alone(spoilt):
    gate = enqueue(dependency(["a"], [step(label="x")]))
    spoil(gate.id, spoilt)
    run("a")
    assert labels() == ["a"]
    assert standing(gate) == ("dead", "bad_input")
    assert gate.group(timeout=1) is None


def test_one_unreadable_work_closes_the_links_behind_its_gate():
    handle = enqueue(flow(links=[["a"], ["b"], ["c"]]))
    drain(limit=1)
    spoil(Work.objects.filter(status="blocked").earliest("id").id, {"options": {"dealy": 1}})
    drain()
    assert labels() == ["a"]
    assert Group.objects.get(id=handle.id).open == 0
    dead = Work.objects.filter(status="dead").order_by("reason")
    assert [work.reason for work in dead] == ["bad_input", "unsatisfiable"]


def test_a_release_of_a_type_unknown_here_is_queued_all_the_same():
    gate = enqueue(dependency(["a"], [step(label="x")]))
    spoil(gate.id, {"type": "gone.work"})
    run("a")
    assert standing(gate) == OPEN
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
    spoilt = work(name="gates.spoilt", codec=Spoilt(text))(lambda: None)
    with pytest.raises(NotEncodable, match=r"gates\.spoilt"):
        enqueue(dependency(["a"], [spoilt()]))
    assert not Work.objects.exists()


# --- what a released work had waited for is read by handlers that ask for it, and by no others ----------


def asks(ctx: Context):
    return [ctx.dependents, ctx.dependents]


async def asks_async(ctx: Context):
    return [ctx.dependents, ctx.dependents]


def asks_not(ctx: Context):
    return [(), ()]


async def async_middleware(ctx, call_next):
    ids = list(ctx.dependents)
    await call_next()
    return [ids, list(ctx.dependents)]


#: Handlers, the options of their types, and whether they ask.
KINDS: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "asks": (asks, {}, True),
    "asks_async": (asks_async, {}, True),
    "asks_atomic": (asks, {"atomic": True}, True),
    "asks_not": (asks_not, {}, False),
    "no_context": (lambda: [(), ()], {}, False),
    "async_middleware": (lambda: None, {"middleware": [async_middleware]}, True),
}


def released(kind: str):
    """Queue a work of this kind behind three others; return their ids, its own, and what it is to return."""
    handler, options, has_asked = KINDS[kind]
    watched = [handle.id for handle in enqueue_many([add(a=number, b=1) for number in range(3)])]
    child = work(name=f"gates.{kind}", **options)(handler)()
    enqueue(dependency(on=watched, queue=[child]))
    return watched, child.id, [watched, watched] if has_asked else [[], []]


def result_of(id):
    eventually(lambda: Work.objects.filter(id=id).exists())
    return [list(ids) for ids in get_handle(id).result(timeout=20)]


@pytest.mark.django_db(transaction=True)
def test_handlers_in_a_worker_see_the_ids_in_order_and_so_does_accept(settings):
    shown = []

    def accept(state: Any) -> bool:
        if state.type == "gates.no_context":
            shown.append((state.id, state.dependents))
        return True

    settings.AYEWORK = {"POLL_INTERVAL": 0.05, "ACCEPT": accept}
    cases = {kind: released(kind) for kind in KINDS}
    with running_worker(concurrency=2):
        for kind, (_, child, expected) in cases.items():
            assert result_of(child) == expected, kind
    ids, child, _ = cases["no_context"]
    assert shown == [(child, tuple(ids))]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == "asks" else on_sqlite) for kind in KINDS]
)
def test_they_are_read_once_by_handlers_that_ask(kind):
    _, child, expected = released(kind)
    with CaptureQueriesContext(connection) as captured:
        drain()
    assert result_of(child) == expected
    statements = [each["sql"] for each in captured if Edge._meta.db_table in each["sql"]]
    reads = [sql for sql in statements if "position" in sql and "LIMIT" not in sql and "SELECT" in sql[:6]]
    by_drain = 1  # which reads the state of what it has run
    assert len(reads) == by_drain + (expected != [[], []]), reads
