"""Instructions that are built with the context, what is planned from them, and the signal to stop."""

import threading
import time
from datetime import UTC, datetime

import pytest

from django_ayework import Count, Retry, dependency
from django_ayework.define.context import AbortReason, AbortSignal
from django_ayework.define.instructions import Instruction
from django_ayework.define.plans import plan_of
from django_ayework.errors import Aborted, AttemptTimeout, AyeworkError
from tests.define.declared import context, step

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_context_remembers_what_it_built_in_order(ctx, build):
    built = [ctx.result(1), ctx.queue([build()]), ctx.void()]
    assert ctx.built == built
    assert all(isinstance(node, Instruction) for node in built)


def test_works_may_be_given_alone_in_lists_in_nested_lists_and_by_generators(ctx, build):
    a, b, c, d = (build() for _ in range(4))
    inner, value = ctx.queue([b]), ctx.result(1)
    gate = dependency(on=["a"], queue=[build()])
    for given, items in [
        (a, [a]), ([a, b], [a, b]), ((a, b), [a, b]), ([a, [b, [c]], (d,)], [a, b, c, d]),
        ((request for request in (a, b)), [a, b]), ([], []),
        ([a, inner, value], [a, inner, value]), (inner, [inner]), ([gate], [gate]),
    ]:  # fmt: skip
        assert ctx.queue(given).items == items
    assert ctx.queue([gate]).next([build()], Count(1)).items == [gate]


@pytest.mark.parametrize("wrong", ["shop.add", 5, None, b"x", {"a": 1}, object(), [None], [step()]])
def test_what_is_no_work_is_refused_with_how_to_build_one(ctx, build, wrong):
    with pytest.raises(TypeError, match=r"built by calling their type, such as add\(a=1, b=2\), or .* got: "):
        ctx.queue(wrong)
    for no_work in (wrong, ["shop.add"], [context().result(1)]):
        message = r"expected next\(works\) to have works built by calling their type"
        with pytest.raises(TypeError, match=message):
            ctx.queue([build()]).next(no_work)


@pytest.mark.parametrize(("option", "hint"), [
    ("prority", ". Did you mean 'priority'"), ("dely", ". Did you mean 'delay'"),
    ("id", ""), ("on_commit", ""),
])  # fmt: skip
def test_an_option_that_is_not_of_queueing_is_refused_with_the_nearest_one(ctx, build, option, hint):
    for queue in (ctx.queue, ctx.queue([build()]).next):
        with pytest.raises(TypeError, match=f"'{option}' is not a queueing option{hint}"):
            queue([build()], **{option: 1})


def test_next_chains(ctx, build):
    first, second, third = build(), build(), build()
    node = ctx.queue([first])
    chained = node.next([second]).next(third, "all-done", retry=Retry(attempts=1))
    assert chained is node
    assert [(link.works, link.condition, link.options) for link in node.links] == [
        ((second,), "all-success", {}),
        ((third,), "all-done", {"retry": Retry(attempts=1)}),
    ]


def test_next_refuses_a_condition_that_cannot_be_met(ctx, build):
    chained, twice = ctx.queue([build(), [build()]]).next([build()], Count(2)), build()
    nested = ctx.queue([build()]).next([build()])
    assert ctx.queue([build(), nested, ctx.result(1)]).next([build()], Count(3)).links
    for node, condition, message in [
        (chained, Count(2), "n at most the 1 watched works, got: 2"),
        (ctx.queue([twice, twice]), Count(2), "n at most the 1 watched works, got: 2"),
        (
            ctx.queue([build(), nested]),
            Count(4),
            "n at most the 3 watched works",
        ),  # nested ones, and their links
        (ctx.queue([build()]), "all-don", r"got: 'all-don'. Did you mean 'all-done'"),
    ]:
        with pytest.raises(ValueError, match=message):
            node.next([build()], condition)


def planned(ctx, returned, strict=True):
    return plan_of(returned, ctx, strict)


def ids(works):
    return [work.id for work in works]


@pytest.mark.parametrize("value", [0, "", False, [], {}, 42, "text", [1, 2], {"a": 1}])
def test_a_plain_value_is_a_result(ctx, value):
    plan = planned(ctx, value)
    assert plan.own.value == value
    assert (plan.contributions, plan.works) == ((plan.own,), ())


def test_none_and_void_are_no_result_and_no_contribution(ctx):
    for returned in (None, ctx.void()):
        plan = planned(ctx, returned, strict=False)
        assert (plan.own, plan.contributions, plan.works) == (None, (), ())


def test_a_result_keeps_its_value_and_how_it_is_to_be_folded(ctx):
    plan = planned(ctx, ctx.result(None))
    assert (plan.own.value, len(plan.contributions)) == (None, 1)
    other = context()
    plan = planned(other, other.result(5, final=True, append=len))
    assert (plan.own.value, plan.own.final, plan.own.append) == (5, True, len)


def test_contributions_and_works_are_in_list_order_however_deep(ctx, build):
    a, b, c, d = (build() for _ in range(4))
    last = ctx.result(5)
    inner = ctx.queue([ctx.result(2), c, ctx.queue([ctx.result(3), d])])
    plan = planned(ctx, ctx.queue([a, ctx.result(1), [b, inner], ctx.result(4), ctx.void(), last]))
    assert plan.own is None, "only a result at the root is the work's own"
    assert [contribution.value for contribution in plan.contributions] == [1, 2, 3, 4, 5]
    assert ids(plan.works) == ids([a, b, c, d])


def test_a_link_watches_the_works_of_nested_instructions_and_of_their_links(ctx, build):
    a, b, c, d = (build() for _ in range(4))
    nested = ctx.queue([b]).next([c])
    plan = planned(ctx, ctx.queue([a, nested, ctx.result(1)]).next([d]))
    *_, inner, outer = plan.works
    assert (inner.watched, ids(inner.releases)) == ((b.id,), [c.id])
    assert (outer.watched, ids(outer.releases)) == ((a.id, b.id, c.id), [d.id])
    other = context()
    assert planned(other, other.queue([]).next([build()])).works[0].watched == ()


def test_options_given_when_queueing_win_over_those_a_type_computes(ctx):
    build = step(options=lambda **given: {"priority": 1, "run_at": NOON, "retry": Retry(base=9, jitter=0)})
    given = {"priority": 5, "delay": 2, "retry": Retry(jitter=1)}
    expected = {"priority": 5, "delay": 2.0, "retry": Retry(base=9, jitter=1)}
    request = build()
    before = dict(request.options)
    queued, gate = planned(ctx, ctx.queue([request], **given).next([build()], **given)).works
    assert request.options == before, "the request itself is not changed"
    assert queued.options == gate.releases[0].options == expected


REASONS = "timeout cancelled taken_by_another_worker already_completed not_found shutdown error"


@pytest.fixture
def signal():
    return AbortSignal()


def test_a_quiet_signal_says_nothing(signal):
    assert list(AbortReason) == REASONS.split()
    assert (signal.aborted, signal.reason) == (False, None)
    assert signal.raise_if_aborted() is None
    assert signal.wait(0) is False


@pytest.mark.parametrize("reason", AbortReason)
def test_a_fired_signal_keeps_and_raises_its_first_reason(signal, reason):
    signal.abort(reason)
    signal.abort(AbortReason.CANCELLED)
    assert (signal.aborted, signal.reason) == (True, reason)
    with pytest.raises(AyeworkError) as raised:
        signal.raise_if_aborted()
    if reason is AbortReason.TIMEOUT:
        assert isinstance(raised.value, AttemptTimeout) and isinstance(raised.value, TimeoutError)
        assert "ran longer than the work's timeout" in str(raised.value)
    else:
        assert isinstance(raised.value, Aborted) and raised.value.reason == reason
        assert f"asked to stop: {reason}" in str(raised.value)


def test_one_reason_wins_when_many_threads_fire(signal):
    ready, seen = threading.Barrier(len(AbortReason)), []

    def fire(reason):
        ready.wait()
        signal.abort(reason)
        seen.append(signal.reason)

    threads = [threading.Thread(target=fire, args=[reason]) for reason in AbortReason]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) == {signal.reason}


def test_waiting_ends_when_the_signal_fires_or_with_its_time(signal):
    started = time.monotonic()
    assert signal.wait(0.02) is False
    assert time.monotonic() - started >= 0.015
    threading.Timer(0.02, signal.abort, [AbortReason.SHUTDOWN]).start()
    assert signal.wait(10) is True
    assert time.monotonic() - started < 5
    assert signal.wait() is True  # at once, from now on
