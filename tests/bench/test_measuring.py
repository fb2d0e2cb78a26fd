"""Measurements: their selection, rounds, processes, and what they leave."""

import importlib.util
import os
import signal
import subprocess
import sys

import pytest

from bench.peers.catalogue import OURS, RAW
from bench.peers.contestant import ONE_WAY, Contestant, Setting
from bench.peers.crew import Crew, DriverFailed
from bench.peers.phases import PHASES, Phase, drain, enqueue_many, percentile
from bench.peers.rounds import measure
from bench.pool import buffer_pool, bytes_of
from bench.running import run
from bench.selection import ON_ALL_DATABASES, ON_EACH_DATABASE, select
from tests.databases import SERVICES
from tests.processes import ROOT, eventually

INNER = """
import pathlib, sys, time
from bench.running import stop_in_order

folder = pathlib.Path(sys.argv[1])
stop_in_order()
try:
    (folder / "started").touch()
    time.sleep(60)
finally:
    time.sleep(0.1)
    (folder / "cleaned").touch()
"""
OUTER = """
import sys
from bench.running import run, stop_in_order

stop_in_order()
run([sys.executable, "-c", sys.argv[1], sys.argv[2]])
"""


def test_without_names_it_is_everything():
    selection = select([])
    assert (selection.on_each, selection.on_all) == (ON_EACH_DATABASE, ON_ALL_DATABASES)
    assert (len(selection.phases), selection.with_peers) == (len(PHASES), True)


@pytest.mark.parametrize(
    ("names", "phases", "with_peers", "others"),
    [
        (["drain"], ("drain",), False, ((), ())),
        (["latency", "enqueue"], ("enqueue-one", "enqueue-many", "latency"), False, ((), ())),
        (["drain", "peers"], ("drain",), True, ((), ())),
        (["peers"], tuple(phase.name for phase in PHASES), True, ((), ())),
        (["memory"], (), False, (("memory",), ())),
        (["memory", "retained"], (), False, (("memory",), ("retained",))),
    ],
)
def test_names_select_phases_peers_and_other_measurements(names, phases, with_peers, others):
    selection = select(names)
    assert (selection.phases, selection.with_peers) == (phases, with_peers)
    assert (selection.on_each, selection.on_all) == others


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(SystemExit, match=r"drain-two.*churn, events, tracing, admin; got: drian"):
        select(["drian"])


@pytest.mark.parametrize("name", [*ON_EACH_DATABASE, *ON_ALL_DATABASES])
def test_every_name_is_a_module(name):
    assert importlib.util.find_spec(f"bench.{name}")


@pytest.fixture(autouse=True)
def sqlite_answers(monkeypatch):
    """SQLite answers, and each driver has a file of its own."""
    monkeypatch.delenv("DATABASE_URL", raising=False)
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


def test_a_failure_costs_its_own_round_only():
    turns = iter([1.0, None, 3.0])

    def measured(crew, setting, count):
        figure = {"ours": lambda: 1.0, "peer": lambda: None, "once": lambda: next(turns)}[crew]()
        if figure is None:
            raise ValueError("no queue\nhere")
        return {"jobs/s": figure}

    readings = measure(phase(measured), {contestant(name): name for name in ("peer", "ours", "once")}, 3, 10)
    assert rates(readings) == {("peer", ""): (), ("ours", ""): (1, 1, 1), ("once", ""): (1, 3)}
    assert [one.reason for one in readings] == ["ValueError: no queue here", "", "ValueError: no queue here"]


def test_a_peer_that_cannot_run_is_not_measured_and_the_reason_is_kept(monkeypatch):
    absent = contestant("peer", needs=("bench", "a_module_nobody_has"))
    (reading,) = measure(phase(None), {absent: "peer"}, 3, 10)
    assert (reading.rounds, reading.reason) == ((), "a_module_nobody_has not installed")
    other = Phase("latency", "latency", 10, "latency", None)
    assert measure(other, {contestant("peer"): "peer"}, 3, 10) == []
    monkeypatch.setattr(SERVICES["sqlite"], "answer", "")
    monkeypatch.setattr(SERVICES["sqlite"], "silence", "nothing answers")
    (reading,) = measure(phase(None), {contestant("peer"): "peer"}, 3, 10)
    assert reading.reason == "SQLite: nothing answers"


@pytest.mark.parametrize(("share", "found"), [(0.5, 100), (0.99, 198), (1, 200), (0.001, 1)])
def test_a_percentile_is_a_value_that_was_measured(share, found):
    assert percentile([float(value) for value in range(1, 201)], share) == found


def test_a_peer_to_whom_nothing_is_held_has_one_round():
    idle = Phase("idle", "idle", 10, "drain", lambda crew, setting, count: {"CPU": 1.0}, peers_once=True)
    readings = measure(idle, {contestant("ours"): "ours", contestant("peer"): "peer"}, 3, 10)
    assert [len(one.rounds) for one in readings] == [3, 1]


def on_sqlite(contestants):
    return next(one for one in contestants if one.database == "sqlite")


def test_a_worker_drains_what_its_driver_has_queued(tmp_path):
    contestant = on_sqlite(OURS)
    with Crew(contestant, tmp_path) as crew:
        setting = contestant.settings["drain"][0]
        figures = drain(crew, setting, 30)
        assert figures["jobs/s"] > 0
        assert sorted(crew.trace.moments()) == list(range(30))
        assert crew.ask("pending") == 0


def test_works_are_cleared_before_the_next_phase_and_workers_end_with_their_block(tmp_path):
    contestant = on_sqlite(RAW)
    with Crew(contestant, tmp_path) as crew:
        for count in (20, 10):
            enqueue_many(crew, contestant.settings["enqueue-many"][0], count)
        assert crew.ask("pending") == 10
        with crew.workers("1", 2) as workers:
            assert [worker.poll() for worker in workers] == [None, None]
        assert None not in [worker.poll() for worker in workers]


def test_a_driver_that_cannot_start_says_why(tmp_path):
    nobody = Contestant("nobody", "sqlite", "nobody_has_this", {"drain": ONE_WAY})

    with Crew(nobody, tmp_path) as crew, pytest.raises(DriverFailed, match="nobody_has_this"):
        crew.ask("clear")


def test_a_driver_that_fails_reports_it_and_goes_on(tmp_path):
    with Crew(on_sqlite(RAW), tmp_path) as crew:
        with pytest.raises(DriverFailed, match="enqueue_one: TypeError"):
            crew.ask("enqueue_one")
        assert crew.ask("pending") == 0


def test_the_status_of_a_measurement_is_returned():
    assert [run([sys.executable, "-c", f"raise SystemExit({status})"]) for status in (0, 3)] == [0, 3]


def test_a_stopped_runner_lets_the_measurement_clean_up(tmp_path):
    command = [sys.executable, "-c", OUTER, INNER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}) as outer:
        try:
            eventually((tmp_path / "started").exists)
            outer.send_signal(signal.SIGTERM)
            status = outer.wait(30)
        finally:
            outer.kill()
    assert status == 128 + signal.SIGTERM
    assert (tmp_path / "cleaned").exists()


def test_a_size_of_the_pool_is_in_megabytes_or_gigabytes_and_is_for_mariadb_only():
    assert (bytes_of("512M"), bytes_of("1g")) == (512 * 1024**2, 1024**3)
    with pytest.raises(ValueError, match="like 512M or 1G, not 'plenty'"):
        bytes_of("plenty")
    with buffer_pool("postgres", "plenty"):
        pass
