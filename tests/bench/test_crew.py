"""Drivers and workers are real processes, and gone when they are no longer needed."""

import pytest

from bench.peers.catalogue import OURS, RAW
from bench.peers.contestant import ONE_WAY, Contestant
from bench.peers.crew import Crew, DriverFailed
from bench.peers.phases import drain, enqueue_many
from tests.databases import SERVICES


@pytest.fixture(autouse=True)
def own_file(monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setattr(SERVICES["sqlite"], "answer", "SQLite")


def on_sqlite(contestants):
    return next(one for one in contestants if one.database == "sqlite")


@pytest.mark.parametrize("contestant", [on_sqlite(OURS), on_sqlite(RAW)], ids=lambda one: one.name)
def test_a_worker_drains_what_its_driver_has_queued(contestant, tmp_path):
    with Crew(contestant, tmp_path) as crew:
        setting = contestant.settings["drain"][0]
        figures = drain(crew, setting, 30)

        assert figures["jobs/s"] > 0
        assert sorted(crew.trace.moments()) == list(range(30))
        assert crew.ask("pending") == 0


def test_what_was_measured_is_cleared_before_the_next_phase(tmp_path):
    contestant = on_sqlite(RAW)
    with Crew(contestant, tmp_path) as crew:
        for count in (20, 10):
            enqueue_many(crew, contestant.settings["enqueue-many"][0], count)

        assert crew.ask("pending") == 10


def test_workers_have_ended_with_their_block(tmp_path):
    with Crew(on_sqlite(RAW), tmp_path) as crew, crew.workers("1", 2) as workers:
        assert [worker.poll() for worker in workers] == [None, None]

    assert None not in [worker.poll() for worker in workers]


def test_a_driver_that_cannot_start_says_why(tmp_path):
    nobody = Contestant("nobody", "sqlite", "nobody_has_this", {"drain": ONE_WAY})

    with Crew(nobody, tmp_path) as crew, pytest.raises(DriverFailed, match="nobody_has_this"):
        crew.ask("clear")


def test_a_driver_that_fails_is_told_and_goes_on(tmp_path):
    with Crew(on_sqlite(RAW), tmp_path) as crew:
        with pytest.raises(DriverFailed, match="enqueue_one: TypeError"):
            crew.ask("enqueue_one")

        assert crew.ask("pending") == 0
