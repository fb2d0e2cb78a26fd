"""Instructions: what their works may be, and what is refused; and the signal to stop."""

import threading
import time

import pytest

from django_ayework import Count, dependency
from django_ayework.define.context import AbortReason, AbortSignal
from django_ayework.errors import Aborted, AttemptTimeout, AyeworkError
from tests.define.declared import context, step


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
