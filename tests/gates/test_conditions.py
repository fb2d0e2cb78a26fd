"""When a gate opens, when it can no longer open, and how retries revive it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_ayework import Count, NotRetryable, Status, dependency, enqueue, enqueue_many, get_handle, retry
from django_ayework.models import Edge, Group, Work
from django_ayework.testing import drain, now, time_travel
from tests.gates.works import BROKEN, flow, gate_over, labels, run, standing, step
from tests.invariants import assert_consistent
from tests.marks import on_sqlite

DEAD, BLOCKED = ("dead", "unsatisfiable"), ("blocked", None)
EXPIRED, OPEN = ("dead", "expired"), ("success", None)
#: A condition over three works, the works of them that die, and whether a gate opens.
CONDITIONS = [
    ("all-success", "", True),
    ("all-success", "b", False),
    ("all-done", "abc", True),
    (Count(2), "abc", True),
    (Count(2, of="success"), "a", True),
    (Count(2, of="success"), "ab", False),
    (Count(0), "abc", True),
]


@pytest.mark.parametrize(
    "gate_first",
    [pytest.param(True, id="gate first"), pytest.param(False, id="works first", marks=on_sqlite)],
)
@pytest.mark.parametrize(("condition", "broken", "opens"), CONDITIONS)
def test_a_gate_opens_when_its_condition_holds(condition, broken: str, opens: bool, gate_first: bool):
    BROKEN.update(broken)
    members = [step(label=label) for label in "abc"]
    if gate_first:
        gate = gate_over(members, condition)
    enqueue_many(members)
    drain()
    if not gate_first:
        gate = gate_over(members, condition)
        drain()
    assert labels().count("after") == opens
    assert standing(gate) == (OPEN if opens else DEAD)


@on_sqlite
@pytest.mark.parametrize("condition", ["all-success", "all-done", Count(0)])
def test_a_gate_that_watches_nothing_opens_at_once(condition):
    gate = gate_over([], condition)
    assert gate.state().status is Status.SUCCESS
    drain()
    assert labels() == ["after"]
    assert gate.group(timeout=1) == "after"


def test_a_gate_opens_in_the_transaction_that_settles_its_last_member():
    members = [step(label="a"), step(label="b")]
    gate = gate_over([members[0], members[0].id, *members])
    assert Edge.objects.count() == 2, "each id counts once"
    enqueue_many(members)
    drain(limit=1)
    assert gate.state().status is Status.BLOCKED
    drain(limit=1)
    assert gate.state().status is Status.SUCCESS
    assert gate.state().attempt == 0, "a gate takes no worker slot"


def test_gates_that_watch_gates_open_in_one_go():
    gates = [dependency(["a"], [])]
    for _ in range(20):
        gates.append(dependency([gates[-1]], []))
    gates.append(dependency([gates[-1]], [step(label="after")]))
    handles = enqueue_many(reversed(gates))
    enqueue(step(label="a"), id="a")
    drain(limit=1)
    assert {standing(handle) for handle in handles} == {OPEN}
    drain()
    assert labels() == ["a", "after"]


def script(on: str, broken: str, acts: str, ran: str, **options: Any) -> tuple[Any, ...]:
    """Return a row: the watched steps, those that die, acts with the gate after each, and what ran."""
    return on.split(), broken.split(), acts.split(", "), ran.split(), options


TWO = Count(2, of="success")
CLOSED, BACK, LATE = "run a b: closed", "retry b: blocked, run: open", "travel 61, run: expired"
SCRIPTS = {
    "opens early, once": script("a b c", "", "run a: open, run b c: open", "a after b c", condition=Count(1)),
    "opens with the second": script(
        "a b c", "", "run a: blocked, run b: open, run c: open", "a b after c", condition=Count(2)
    ),
    "compares ids by their bytes": script("O1", "", "run o1: blocked, run O1: open", "o1 O1 after"),
    "may wait on": script("a", "a", "run a: blocked, mend, retry a, run: open", "a after", on_unmet="wait"),
    "closes with the first": script("a b", "a b", "run a: closed, run b: closed", ""),
    "closes once too few are left": script(
        "a b c", "a b c", "run a: blocked, run b: closed, run c: closed", "", condition=TWO
    ),
    "is revived by the second retry": script(
        "a b", "a b", f"{CLOSED}, refuse a b, mend, retry a: closed, run: closed, {BACK}", "a b after"
    ),
    "revived by two retries": script("a b", "a b", f"{CLOSED}, mend, retry a: closed, {BACK}", "a b after"),
    "is revived when its count can be reached": script(
        "a b c", "a b", f"{CLOSED}, run c: closed, mend, {BACK}", "c b after", condition=TWO
    ),
    "keeps outcomes though members end later": script(
        "a b c", "b", f"{CLOSED}, run c, mend, {BACK}", "a c b after"
    ),
    "keeps outcomes though members are pruned": script(
        "a b c", "b", f"{CLOSED}, run c, prune a, mend, {BACK}", "a c b after"
    ),
    "opens by a retry after its timeout": script(
        "a", "", f"{LATE}, run a: expired, retry gate: open, run", "a after", timeout=60
    ),
    "names its dead member after its timeout": script(
        "a", "a", f"{LATE}, run a: expired, refuse a", "", timeout=60
    ),
    "stays expired when its member is retried": script(
        "a b", "a", f"run a: blocked, {LATE}, mend, retry a, run: expired", "a", timeout=60, on_unmet="wait"
    ),
    "has its whole timeout again": script(
        "a b",
        "a",
        "run a: closed, travel 99, mend, retry a, run: blocked, run b: open",
        "a b after",
        timeout=60,
    ),
}
STANDINGS = {"open": OPEN, "blocked": BLOCKED, "closed": DEAD, "expired": EXPIRED}


#: Those that show a statement of their own; the others show how a gate is decided.
EVERYWHERE = {
    *("opens early, once", "compares ids by their bytes", "has its whole timeout again"),
    *("closes once too few are left", "keeps outcomes though members are pruned"),
}


@pytest.mark.parametrize(
    "script", [pytest.param(name, marks=[] if name in EVERYWHERE else on_sqlite) for name in SCRIPTS]
)
def test_a_gate(script: str):
    on, broken, acts, ran, options = SCRIPTS[script]
    BROKEN.update(broken)
    gate = gate_over(on, **options)
    for each in acts:
        act, _, expected = each.partition(": ")
        verb, *ids = act.split()
        match verb:
            case "run":
                run(*ids)
            case "mend":
                BROKEN.clear()
            case "retry":
                retry(gate.id if ids == ["gate"] else ids[0])
            case "refuse":
                with pytest.raises(NotRetryable, match=", ".join(ids)) as refused:
                    retry(gate.id)
                assert refused.value.members == tuple(ids)
            case "prune":
                Work.objects.filter(id__in=ids).delete()
            case "travel":
                time_travel(int(ids[0]))
        assert not expected or standing(gate) == STANDINGS[expected], each
        if expected == "closed" and BROKEN:
            assert f"{broken[0]} is dead" in gate.state().error
            assert gate.group(timeout=1) is None
    assert labels() == ran


# --- a gate that can no longer open ---------------------------------------------------------------------


def test_a_chain_of_links_closes_to_its_end_in_one_transaction():
    BROKEN.add("1")
    handle = enqueue(flow(links=[["0", "1"], *([str(number)] for number in range(2, 21))]))
    drain(limit=3)
    assert labels() == ["0"]
    gates = Work.objects.filter(group_id=handle.id, type="@work/dependency")
    assert [gate.reason for gate in gates] == ["unsatisfiable"] * 19
    group = Group.objects.get(id=handle.id)
    assert (group.open, group.total, group.dead) == (0, 22, 20)
    assert handle.group(timeout=1) == "0"


def test_a_closed_gate_counts_as_dead_and_what_it_held_as_cancelled_nested_gates_too():
    BROKEN.add("a")
    innermost, held = step(label="innermost"), step(label="held")
    inner = dependency(["x"], [innermost])
    gate = dependency(["a"], [inner, held])
    done = [enqueue(dependency([one], [], "all-done")) for one in (gate, inner, innermost)]
    report = enqueue(dependency([held], [step(label="report")], "all-done"))
    success = [enqueue(dependency([one], [])) for one in (gate, held)]
    enqueue(gate)
    run("a")
    assert {standing(handle) for handle in (*done, report)} == {OPEN}
    assert {standing(handle) for handle in success} == {DEAD}
    assert labels() == ["report"]
    assert get_handle(innermost.id).state() is None


# --- revival --------------------------------------------------------------------------------------------


def retry_broken(*ids: str) -> None:
    """Mend everything, and retry these works, or the one step that has died."""
    BROKEN.clear()
    for id in ids or Work.objects.filter(status="dead", type="gates.step").values_list("id", flat=True):
        retry(id)


def counts(handle) -> tuple[int, int, int, bool]:
    group = Group.objects.get(id=handle.id)
    return group.open, group.total, group.dead, group.done_at is not None


def test_retrying_the_dead_member_lets_the_workflow_carry_on():
    BROKEN.add("b")
    handle = enqueue(flow(links=[["a", "b"], ["c1", "c2"], ["d"]]))
    drain()
    for _ in range(2):
        assert_consistent()
        assert counts(handle) == (0, 5, 3, True)
        retry(Work.objects.get(status="dead", type="gates.step").id)
        assert_consistent()
        assert counts(handle) == (3, 5, 0, False)
        drain()  # it dies again, and the chain closes again
    retry_broken()
    drain()
    assert (labels()[:2], sorted(labels()[2:4]), labels()[4:]) == (["a", "b"], ["c1", "c2"], ["d"])
    assert counts(handle) == (0, 8, 0, True)
    assert handle.group(timeout=1) == "d"


def test_an_all_done_link_that_ran_meanwhile_does_not_run_again():
    BROKEN.add("a")
    b = step(label="b")
    first = enqueue(dependency(["a"], [b]))
    second = enqueue(dependency([b], [step(label="report")], "all-done"))
    run("a")
    assert labels() == ["report"]
    retry_broken("a")
    drain()
    assert labels() == ["report", "a", "b"]
    assert {standing(first), standing(second)} == {OPEN}


def test_a_gate_dead_of_bad_input_opens_once_its_input_is_mended():
    gate = gate_over("a")
    good = Work.objects.get(id=gate.id).input
    Work.objects.filter(id=gate.id).update(input="garbage")
    run("a")
    for _ in range(2):
        assert standing(gate) == ("dead", "bad_input")
        assert "expected the stored input of a gate" in gate.state().error
        retry(gate.id)
    Work.objects.filter(id=gate.id).update(input=good)
    retry(gate.id)
    drain()
    assert labels() == ["a", "after"]


# --- timeouts -------------------------------------------------------------------------------------------


def pass_time(seconds: float = 61) -> None:
    time_travel(seconds)
    drain()


def test_the_condition_is_looked_at_before_the_timeout():
    """Its member had ended long before; only the recheck was late."""
    BROKEN.add("a")
    run("a")
    gate = gate_over("a", "all-done", timeout=60)
    pass_time()
    assert standing(gate) == OPEN


def test_a_gate_past_its_timeout_dies_and_its_chain_closes_until_it_is_retried():
    gate = dependency(["a"], [step(label="b")], timeout=60)
    behind = enqueue(dependency([gate.releases[0]], [step(label="c")]))
    done = enqueue(dependency([gate.releases[0]], [step(label="done")], "all-done"))
    handle = enqueue(gate)
    pass_time(59)
    assert standing(handle) == BLOCKED
    pass_time(2)
    assert (standing(handle), standing(done), standing(behind)) == (EXPIRED, OPEN, DEAD)
    assert labels() == ["done"]
    assert handle.group(timeout=1) is None
    retry(handle.id)
    drain()
    assert (standing(handle), standing(behind)) == (BLOCKED, BLOCKED)
    assert timedelta(seconds=58) < handle.state().deadline - now() <= timedelta(seconds=60)
    run("a")
    assert labels() == ["done", "a", "b", "c"]


@on_sqlite
@pytest.mark.parametrize("option", ["expires", "deadline"])
def test_options_that_bound_a_life_bound_a_gate_and_a_retry_counts_expires_anew(option: str):
    value = 60 if option == "expires" else now() + timedelta(seconds=60)
    gate = enqueue(dependency(["a"], [step(label="after")]), **{option: value})
    pass_time()
    assert standing(gate) == EXPIRED
    retry(gate.id)
    drain()
    assert standing(gate) == (BLOCKED if option == "expires" else EXPIRED)
