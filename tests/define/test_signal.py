"""How a running attempt learns that it should stop."""

import threading
import time

import pytest

from django_ayework.define.context import AbortReason, AbortSignal
from django_ayework.errors import Aborted, AttemptTimeout, AyeworkError

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
