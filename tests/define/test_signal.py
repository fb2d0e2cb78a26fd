"""How a running attempt learns that it should stop."""

import threading
import time

import pytest

from django_ayework.define.context import AbortReason, AbortSignal
from django_ayework.errors import Aborted, AttemptTimeout, AyeworkError

OTHER_REASONS = [reason for reason in AbortReason if reason is not AbortReason.TIMEOUT]


@pytest.fixture
def signal():
    return AbortSignal()


def test_the_reasons():
    assert list(AbortReason) == [
        "timeout",
        "cancelled",
        "taken_by_another_worker",
        "already_completed",
        "not_found",
        "shutdown",
        "error",
    ]


def test_a_quiet_signal_says_nothing(signal):
    assert (signal.aborted, signal.reason) == (False, None)
    assert signal.raise_if_aborted() is None
    assert signal.wait(0) is False


@pytest.mark.parametrize("reason", AbortReason)
def test_a_fired_signal_tells_its_reason(signal, reason):
    signal.abort(reason)

    assert (signal.aborted, signal.reason) == (True, reason)


def test_the_first_reason_stays(signal):
    signal.abort(AbortReason.CANCELLED)
    signal.abort(AbortReason.TIMEOUT)

    assert signal.reason == "cancelled"


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


def test_a_timeout_raises_attempt_timeout(signal):
    signal.abort(AbortReason.TIMEOUT)
    with pytest.raises(AttemptTimeout, match="ran longer than the work's timeout") as raised:
        signal.raise_if_aborted()

    assert isinstance(raised.value, AyeworkError)
    assert isinstance(raised.value, TimeoutError)


@pytest.mark.parametrize("reason", OTHER_REASONS)
def test_any_other_reason_raises_aborted_with_it(signal, reason):
    signal.abort(reason)
    with pytest.raises(Aborted, match=f"asked to stop: {reason}") as raised:
        signal.raise_if_aborted()

    assert raised.value.reason == reason


def test_waiting_ends_when_the_signal_fires(signal):
    threading.Timer(0.02, signal.abort, [AbortReason.SHUTDOWN]).start()
    started = time.monotonic()

    assert signal.wait(10) is True
    assert time.monotonic() - started < 5
    assert signal.wait() is True  # at once, from now on


def test_waiting_ends_with_its_time(signal):
    started = time.monotonic()

    assert signal.wait(0.02) is False
    assert time.monotonic() - started >= 0.015
