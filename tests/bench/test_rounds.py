"""Everyone has a turn in every round, and nobody's failure stops the others."""

import pytest

from bench.peers.contestant import Contestant, Setting
from bench.peers.phases import Phase, percentile
from bench.peers.rounds import measure
from tests.databases import SERVICES


@pytest.fixture(autouse=True)
def sqlite_answers(monkeypatch):
    monkeypatch.setattr(SERVICES["sqlite"], "answer", "SQLite")


def contestant(name, *titles, **options):
    settings = {"drain": tuple(Setting(title, title) for title in titles or ("",))}
    return Contestant(name, "sqlite", "none", settings, **options)


def phase(measured):
    return Phase("drain", "drain", 10, "drain", measured)


def rates(readings):
    return {(one.contestant, one.setting): one.rounds for one in readings}


def test_turns_alternate_and_every_other_round_runs_backwards():
    turns = []

    def measured(crew, setting, count):
        turns.append((crew, setting.value))
        return {"jobs/s": float(len(turns))}

    ours, peer = contestant("ours"), contestant("peer", "slow", "fast")
    readings = measure(phase(measured), {ours: "ours", peer: "peer"}, rounds=2, count=10)

    forth = [("ours", ""), ("peer", "slow"), ("peer", "fast")]
    assert turns == forth + forth[::-1]
    assert rates(readings) == {("ours", ""): (1, 6), ("peer", "slow"): (2, 5), ("peer", "fast"): (3, 4)}


def test_one_that_fails_is_told_and_the_others_go_on():
    def measured(crew, setting, count):
        if crew == "peer":
            raise ValueError("no queue\nhere")
        return {"jobs/s": 1.0}

    readings = measure(phase(measured), {contestant("peer"): "peer", contestant("ours"): "ours"}, 3, 10)

    assert rates(readings) == {("peer", ""): (), ("ours", ""): (1, 1, 1)}
    assert readings[0].reason == "ValueError: no queue here"


def test_one_that_fails_once_keeps_its_other_rounds():
    turns = iter([{"jobs/s": 1.0}, None, {"jobs/s": 3.0}])

    def measured(crew, setting, count):
        if (figures := next(turns)) is None:
            raise ValueError("a moment of weakness")
        return figures

    (reading,) = measure(phase(measured), {contestant("peer"): "peer"}, 3, 10)

    assert (reading.rounds, reading.reason) == ((1, 3), "ValueError: a moment of weakness")


def test_one_that_is_not_installed_is_told_and_never_asked():
    def measured(crew, setting, count):
        raise AssertionError("it was asked")

    absent = contestant("peer", needs=("bench", "a_module_nobody_has"))
    (reading,) = measure(phase(measured), {absent: "peer"}, 3, 10)

    assert (reading.rounds, reading.reason) == ((), "a_module_nobody_has not installed")


def test_one_whose_database_does_not_answer_is_told(monkeypatch):
    monkeypatch.setattr(SERVICES["sqlite"], "answer", "")
    monkeypatch.setattr(SERVICES["sqlite"], "silence", "nothing answers")

    (reading,) = measure(phase(None), {contestant("peer"): "peer"}, 3, 10)

    assert reading.reason == "SQLite: nothing answers"


def test_who_has_no_settings_for_a_phase_is_not_in_it():
    other = Phase("latency", "latency", 10, "latency", None)

    assert measure(other, {contestant("peer"): "peer"}, 3, 10) == []


@pytest.mark.parametrize(("share", "found"), [(0.5, 100), (0.99, 198), (1, 200), (0.001, 1)])
def test_a_percentile_is_a_value_that_was_measured(share, found):
    assert percentile([float(value) for value in range(1, 201)], share) == found


def test_a_peer_to_whom_nothing_is_held_has_one_round():
    idle = Phase("idle", "idle", 10, "drain", lambda crew, setting, count: {"CPU": 1.0}, peers_once=True)

    readings = measure(idle, {contestant("ours"): "ours", contestant("peer"): "peer"}, 3, 10)

    assert [len(one.rounds) for one in readings] == [3, 1]
