"""When a worker has done enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from django_ayework.worker import limits
from django_ayework.worker.limits import MEGABYTE, Limits, resident_bytes


def test_without_limits_there_is_room_for_ever():
    unlimited = Limits(None, None)
    assert not unlimited.judge(10**9, lambda: True)
    assert unlimited.room(5, 10**9) == 5


def test_attempts_count_once_all_of_them_have_begun():
    limited = Limits(10, None)
    assert limited.room(5, 8) == 2
    assert not limited.judge(9, lambda: True)
    assert not limited.judge(10, lambda: False), "some may be given back"
    assert limited.judge(10, lambda: True)
    assert limited.room(5, 3) == 0, "what was reached stays so"


def test_memory_is_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch):
    uses = [99 * MEGABYTE, 101 * MEGABYTE, MEGABYTE]
    monkeypatch.setattr(limits, "resident_bytes", lambda: uses.pop(0))
    limited = Limits(None, 100)
    assert not limited.judge(0, lambda: True)
    assert not limited.judge(0, lambda: True), "it has just looked"
    monkeypatch.setattr(limits, "MEASURE_EVERY", 0.0)
    assert limited.judge(0, lambda: True)
    assert limited.judge(0, lambda: True)
    assert limited.reached == "101 MB are in use, more than 100"


def test_where_the_system_does_not_tell_the_peak_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    now = resident_bytes()
    assert now > 10 * MEGABYTE
    monkeypatch.setattr(limits, "STATM", tmp_path / "nowhere")
    assert resident_bytes() >= now * 0.9


def test_macos_tells_the_peak_in_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(limits, "STATM", tmp_path / "nowhere")
    elsewhere = resident_bytes()
    monkeypatch.setattr(limits.sys, "platform", "darwin")
    assert resident_bytes() <= elsewhere / 1000
