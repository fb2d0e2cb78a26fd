"""From what a handler returned to what is done."""

from datetime import UTC, datetime

import pytest

from django_ayework import Count, Retry
from django_ayework.define.instructions import plan_of
from django_ayework.define.requests import GateRequest
from django_ayework.errors import AyeworkError, InvalidInstruction
from tests.define.declared import context, step

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def ctx():
    return context()


@pytest.fixture
def build():
    return step()


def planned(ctx, returned, strict=True):
    return plan_of(returned, ctx, strict)


def ids(works):
    return [work.id for work in works]


def values(plan):
    return [contribution.value for contribution in plan.contributions]


# Values


@pytest.mark.parametrize("value", [0, "", False, [], {}, 42, "text", [1, 2], {"a": 1}])
def test_a_plain_value_is_a_result(ctx, value):
    plan = planned(ctx, value)

    assert plan.own.value == value
    assert (plan.contributions, plan.works) == ((plan.own,), ())


def test_none_and_void_are_no_result_and_no_contribution(ctx):
    for returned in (None, ctx.void()):
        plan = planned(ctx, returned, strict=False)

        assert (plan.own, plan.contributions, plan.works) == (None, (), ())


def test_a_result_of_none_is_a_contribution_all_the_same(ctx):
    plan = planned(ctx, ctx.result(None))

    assert plan.own.value is None
    assert len(plan.contributions) == 1


def test_a_result_keeps_how_it_is_to_be_folded(ctx):
    plan = planned(ctx, ctx.result(5, final=True, append=len))

    assert (plan.own.value, plan.own.final, plan.own.append) == (5, True, len)


# Delegation


def test_only_a_result_at_the_root_is_the_works_own(ctx, build):
    plan = planned(ctx, ctx.queue([build(), ctx.result("not mine")]))

    assert plan.own is None
    assert values(plan) == ["not mine"]


def test_contributions_and_works_are_in_list_order_however_deep(ctx, build):
    a, b, c, d = (build() for _ in range(4))
    inner = ctx.queue([ctx.result(2), c, ctx.queue([ctx.result(3), d])])

    plan = planned(ctx, ctx.queue([a, ctx.result(1), [b, inner], ctx.result(4), ctx.void()]))

    assert values(plan) == [1, 2, 3, 4]
    assert ids(plan.works) == ids([a, b, c, d])


def test_an_instruction_built_before_its_container_is_placed_where_it_is_listed(ctx, build):
    last, first = ctx.result("last"), ctx.result("first")

    assert values(planned(ctx, ctx.queue([first, last]))) == ["first", "last"]


# .next


def test_each_link_is_a_gate_on_the_works_of_the_link_before(ctx, build):
    a, b, c, d = (build() for _ in range(4))

    plan = planned(ctx, ctx.queue([a, b]).next([c], Count(1)).next([d], "all-done"))
    first, second = plan.works[2:]

    assert ids(plan.works[:2]) == [a.id, b.id]
    assert isinstance(first, GateRequest)
    assert (first.watched, ids(first.releases), first.condition) == ((a.id, b.id), [c.id], Count(1))
    assert (second.watched, ids(second.releases), second.condition) == ((c.id,), [d.id], "all-done")
    assert first.timeout is second.timeout is None


def test_a_link_watches_the_works_of_nested_instructions_and_of_their_links(ctx, build):
    a, b, c, d = (build() for _ in range(4))
    nested = ctx.queue([b]).next([c])

    plan = planned(ctx, ctx.queue([a, nested, ctx.result(1)]).next([d]))
    *_, inner, outer = plan.works

    assert (inner.watched, ids(inner.releases)) == ((b.id,), [c.id])
    assert (outer.watched, ids(outer.releases)) == ((a.id, b.id, c.id), [d.id])


def test_a_link_after_nothing_watches_nothing(ctx, build):
    gate = planned(ctx, ctx.queue([]).next([build()])).works[0]

    assert gate.watched == ()


# Options


def test_options_of_queue_reach_its_own_works_only(ctx, build):
    direct, listed, nested, after = (build() for _ in range(4))
    node = ctx.queue([direct, [listed], ctx.queue([nested])], priority=5).next([after])

    *works, gate = planned(ctx, node).works

    assert [work.options for work in works] == [{"priority": 5}, {"priority": 5}, {}]
    assert (gate.options, gate.releases[0].options) == ({}, {})


def test_options_of_next_reach_the_next_works_rather_than_the_gate(ctx, build):
    node = ctx.queue([build()]).next([build()], priority=3, delay=5).next([build()], queue="mail")

    first, gate, other_gate = planned(ctx, node).works

    assert (first.options, gate.options, other_gate.options) == ({}, {}, {})
    assert gate.releases[0].options == {"priority": 3, "delay": 5.0}
    assert other_gate.releases[0].options == {"queue": "mail"}


def test_options_given_when_queueing_win_over_those_a_type_computes(ctx):
    build = step(options=lambda **given: {"priority": 1, "run_at": NOON, "retry": Retry(base=9, jitter=0)})
    given = {"priority": 5, "delay": 2, "retry": Retry(jitter=1)}
    expected = {"priority": 5, "delay": 2.0, "retry": Retry(base=9, jitter=1)}

    queued, gate = planned(ctx, ctx.queue([build()], **given).next([build()], **given)).works

    assert queued.options == expected
    assert gate.releases[0].options == expected


def test_a_request_is_not_changed_by_being_queued_with_options(ctx, build):
    request = build()
    planned(ctx, ctx.queue([request], priority=5))

    assert request.options == {}


# What cannot be carried out


@pytest.mark.parametrize(
    ("create", "remedy"),
    [
        (lambda ctx, build: ctx.queue([build()]), "return ctx.queue(…)"),
        (lambda ctx, build: ctx.result(1), "return ctx.result(…)"),
        (lambda ctx, build: ctx.void(), "return ctx.void(…)"),
    ],
)
@pytest.mark.parametrize("returned", [None, 5])
def test_an_instruction_that_was_not_returned_fails_the_attempt(ctx, build, create, remedy, returned):
    create(ctx, build)
    with pytest.raises(InvalidInstruction) as failure:
        planned(ctx, returned)

    assert "not returned" in str(failure.value)
    assert remedy in str(failure.value)
    assert "'shop.me'" in str(failure.value)
    assert failure.value.id == "me"
    assert isinstance(failure.value, AyeworkError)


def test_an_instruction_beside_the_returned_one_fails_the_attempt(ctx, build):
    ctx.queue([build()])
    with pytest.raises(InvalidInstruction, match=r"return ctx.queue\(…\)"):
        planned(ctx, ctx.result(1))


def test_an_instruction_inside_the_returned_one_is_returned(ctx, build):
    inner = ctx.queue([build(), ctx.queue([build()])])

    assert len(planned(ctx, ctx.queue([inner])).works) == 2


def test_in_loose_mode_what_was_not_returned_does_not_run(ctx, build):
    ctx.queue([build()])

    assert planned(ctx, 5, strict=False).works == ()
    assert planned(ctx, ctx.void(), strict=False).contributions == ()


@pytest.mark.parametrize("strict", [True, False])
def test_an_instruction_of_another_context_is_refused_wherever_it_stands(ctx, build, strict):
    foreign = context().queue([build()])
    for returned in (foreign, ctx.queue([foreign]), ctx.queue([ctx.queue([foreign])])):
        with pytest.raises(InvalidInstruction, match="an instruction of another context") as failure:
            planned(ctx, returned, strict)
        assert failure.value.id == "me"


@pytest.mark.parametrize("strict", [True, False])
def test_a_work_that_was_returned_rather_than_queued_is_refused(ctx, build, strict):
    with pytest.raises(InvalidInstruction, match=r"the work 'step' itself; return ctx.queue\(\[...\]\)"):
        planned(ctx, build(), strict)
