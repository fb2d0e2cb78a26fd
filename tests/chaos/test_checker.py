"""The checker of the fault injection finds what was planted in a run without faults."""

import random
import shutil
import sqlite3
from contextlib import closing

import pytest

from chaos import recorded, tables
from chaos.checker import DOUBLED, LOST, STUCK, WRONG, Case, check
from chaos.faults import Nothing
from chaos.ledger import read
from chaos.run import Run
from chaos.servers import SQLite

pytestmark = pytest.mark.vendors("sqlite")
SECONDS = 1.5


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    """A run without faults, of real processes: the path of its database, and its ledgers."""
    server = SQLite(tmp_path_factory.mktemp("server"))
    server.install()
    run = Run(server, Nothing, "1", tmp_path_factory.mktemp("run"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chaos.run.WORKERS", 2)
        patch.setattr("chaos.run.ENQUEUERS", 1)
        run.carry_out(SECONDS)
    run.ledger.close()
    return server.path, read(run.folder)


@pytest.fixture
def database(taken, tmp_path):
    """A copy of the run's database."""
    shutil.copy(taken[0], tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy", isolation_level=None)) as connection:
        yield connection


@pytest.fixture
def lines(taken):
    """A copy of the run's ledgers."""
    return [dict(line) for line in taken[1]]


@pytest.fixture
def found(database, lines):
    """What the checker finds."""
    return lambda: check(Case(recorded.order(lines), tables.read(database.cursor())))


@pytest.fixture
def missing(found):
    """Of these categories, ids and texts those that the checker does not find."""

    def missing(*expected):
        said = found()
        return [
            (category, id, text)
            for category, id, text in expected
            if not any(f.category == category and id in (f.id, None) and text in f.text for f in said)
        ]

    return missing


def one(database, statement):
    row = database.execute(statement).fetchone()
    assert row, f"the run has nothing of this kind: {statement}"
    return row[0]


def some_work(database, type):
    return one(database, f"SELECT id FROM django_ayework_work WHERE type = '{type}' AND ended_at IS NOT NULL")


def two_works(database, type):
    statement = f"SELECT id FROM django_ayework_work WHERE type = '{type}' AND ended_at IS NOT NULL LIMIT 2"
    [[one], [other]] = database.execute(statement).fetchall()
    return one, other


def copy_work(database, source, id):
    cursor = database.execute("SELECT * FROM django_ayework_work WHERE id = ?", [source])
    row = dict(zip([column[0] for column in cursor.description], cursor.fetchone(), strict=True)) | {"id": id}
    marks = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO django_ayework_work ({', '.join(row)}) VALUES ({marks})", [*row.values()])


def first(lines, event):
    return next(line for line in lines if line["e"] == event)


def test_nothing_is_found_in_a_run_that_was_left_alone(found, lines):
    assert found() == []
    kinds = {line["kind"] for line in lines if line["e"] == "will"}
    assert len(kinds) >= 8 and any(line["e"] == "rolled back" for line in lines)


DELETE = "DELETE FROM django_ayework_work WHERE id = ?"
SET_BACK = "UPDATE django_ayework_work SET status = 'pending', ended_at = NULL WHERE id = ?"
DIE = "UPDATE django_ayework_work SET status = 'dead', reason = 'exhausted' WHERE id = ?"
ONE_MORE = "UPDATE django_ayework_work SET attempt = attempt + 1 WHERE id = ?"
ANNOUNCED = (DOUBLED, "announced as ended, and has not ended")


@pytest.mark.parametrize(
    ("types", "statement", "expected"),
    [
        ("plain atomic batch fan", DELETE, [(LOST, "was committed, and is not there")]),
        ("plain", SET_BACK, [(STUCK, "is still pending"), ANNOUNCED]),
        ("plain", DIE, [(LOST, "is dead (exhausted)")]),
        (
            "atomic staged join",
            "INSERT INTO chaos_effect (work, kind) VALUES (?, 'once')",
            [(DOUBLED, "has 2 effects")],
        ),
        ("atomic", "DELETE FROM chaos_effect WHERE work = ?", [(LOST, "has 0 effects")]),
        ("plain", ONE_MORE, [(WRONG, "counts 2 attempts; 1 are known")]),
    ],
    ids=["deleted", "set back", "dead for no reason", "a second effect", "no effect", "an attempt"],
)
def test_a_work_that_is_not_as_it_was_left_is_named(database, missing, types, statement, expected):
    ids = [some_work(database, f"chaos.{type}") for type in types.split()]
    for id in ids:
        database.execute(statement, [id])
    assert missing(*((category, id, text) for id in ids for category, text in expected)) == []


@pytest.mark.parametrize(("change", "category"), [("+ 1", DOUBLED), ("- 1", LOST)])
def test_a_groups_value_is_exact(database, missing, change, category):
    id = one(database, "SELECT id FROM django_ayework_group WHERE value IS NOT NULL")
    database.execute(f"UPDATE django_ayework_group SET value = value {change} WHERE id = ?", [id])
    assert missing((category, id, "the value of the group")) == []


@pytest.mark.parametrize(("category", "number"), [(DOUBLED, 2), (LOST, 0)])
def test_a_gate_that_has_released_twice_or_nothing_is_named(database, missing, category, number):
    id = some_work(database, "chaos.join")
    root = one(database, f"SELECT group_id FROM django_ayework_work WHERE id = '{id}'")
    copy_work(database, id, "planted") if number else database.execute(DELETE, [id])
    assert missing((category, root, f"chaos.join of the fan-out: {number} instead of 1")) == []


def test_a_chain_has_each_step(database, missing):
    id = one(database, "SELECT chain_id FROM django_ayework_work WHERE chain_index = 1")
    database.execute("DELETE FROM django_ayework_work WHERE chain_id = ? AND chain_index = 1", [id])
    assert missing((LOST, id, "steps of the chain")) == []


def test_works_that_must_not_be_there_are_named(database, missing, lines):
    """They were rolled back, queued by nobody, or have the key of another live one."""
    call = first(lines, "rolled back")["p"]
    id = next(line["ids"][0] for line in lines if line["e"] == "will" and line["p"] == call)
    copy_work(database, some_work(database, "chaos.plain"), id)
    copy_work(database, some_work(database, "chaos.keyed"), "planted")
    expected = {id: "was rolled back, and is there", "planted": "was queued by nobody"}
    expected[None] = "there was another live work"
    assert missing(*((DOUBLED, id, text) for id, text in expected.items())) == []


def test_an_attempt_that_was_spent_for_nothing_is_wrong(database, missing):
    id = some_work(database, "chaos.plain")
    database.execute(ONE_MORE, [id])
    worker = one(database, "SELECT id FROM django_ayework_workerprocess")
    database.execute(
        "INSERT INTO django_ayework_attempt (work_id, number, worker, outcome, error, traceback, ended_at) "
        "VALUES (?, 1, ?, 'lost', 'worker lost', '', '2026-01-01')",
        [id, worker],
    )
    assert missing((WRONG, id, "was spent (lost)")) == []


def test_lines_of_a_ledger_that_are_missing_are_named(database, missing, lines):
    id = some_work(database, "chaos.plain")
    lines.remove(random.Random(1).choice([line for line in lines if line["e"] == "start"]))
    lines[:] = [line for line in lines if not (line["e"] == "ok" and line["id"] == id)]
    dropped = first(lines, "committed")
    lines.remove(dropped)
    assert (
        missing(
            (LOST, None, "lacks the lines"),
            (LOST, id, "no handler has ended well"),
            (LOST, dropped["p"], "does not say what became of the call"),
        )
        == []
    )


def test_a_second_settlement_is_doubled_and_a_start_before_its_time_is_wrong(missing, lines):
    line = first(lines, "settled")
    lines.append(line)
    calls = [line for line in lines if line["e"] == "will" and line["kind"] == "delayed"]
    committed = {line["p"] for line in lines if line["e"] == "committed"}
    call = next(line for line in calls if line["p"] in committed)
    call["facts"] = {"delay": call["facts"]["delay"] + 3600}
    assert missing((DOUBLED, line["id"], "was settled 2 times"), (WRONG, call["ids"][0], "too early")) == []


def test_a_single_attempt_that_is_made_twice_is_doubled_unless_its_worker_was_told_to_stop(
    database, missing, lines
):
    id = some_work(database, "chaos.once")
    start = next(line for line in lines if line["e"] == "start" and line["id"] == id)
    again = {"t": 0.0, "pid": 1, "s": 0, "file": "planted"}
    lines.append(start | again)
    assert missing((DOUBLED, id, "the chaos.once has run 2 times")) == []
    lines.append(again | {"s": 1, "e": "signal", "signal": "SIGTERM", "worker_pid": 1})
    assert missing((DOUBLED, id, "the chaos.once has run 2 times")) != []


LOSE = (
    "UPDATE django_ayework_work SET status = 'dead', reason = 'exhausted', error = 'worker lost' WHERE id = ?"
)


def lost_ids(findings):
    """What is lost, apart from the lines that a test has removed from a ledger."""
    return {
        finding.id for finding in findings if finding.category == LOST and "the ledger" not in finding.text
    }


NOT_NOTED = "UPDATE django_ayework_work SET begun_delivery = 0 WHERE id = ?"
ATTEMPT = (
    "INSERT INTO django_ayework_attempt (work_id, number, worker, outcome, error, traceback, ended_at) "
    "VALUES (?, 1, 'some-worker', 'lost', 'worker lost', '', '2026-01-01 00:00:00')"
)


def test_a_single_attempt_may_die_with_its_worker_if_it_was_made_or_noted_as_begun(database, found, lines):
    made, noted, neither = [some_work(database, "chaos.once_async"), *two_works(database, "chaos.once")]
    for id in (made, noted, neither):
        database.execute(LOSE, [id])
    for id in (made, neither):
        database.execute(NOT_NOTED, [id])
    lines[:] = [line for line in lines if line.get("id") not in (noted, neither)]
    assert lost_ids(found()) == {neither}


def test_a_lost_worker_takes_no_more_single_attempts_along_than_it_begins_at_once(database, found, lines):
    id = some_work(database, "chaos.once")
    database.execute(LOSE, [id])
    lines[:] = [line for line in lines if line.get("id") != id]
    database.execute(ATTEMPT, [id])
    for number in range(5):
        copy_work(database, id, f"copy-{number}")
        if number < 4:
            database.execute(ATTEMPT, [f"copy-{number}"])
    assert lost_ids(found()) == set()
    database.execute(ATTEMPT, ["copy-4"])
    assert lost_ids(found()) == {"some-worker"}


def test_a_worker_that_died_by_itself_is_named(missing, lines):
    pid = next(line["pid"] for line in lines if line["e"] == "up" and "worker" in line)
    said_by_harness = {"t": 0.0, "pid": 1, "s": 0, "file": "planted", "worker_pid": pid}
    lines[:] = [line for line in lines if line["e"] not in ("signal", "worker ended")]
    lines.append(said_by_harness | {"e": "worker ended", "status": 1})
    lines.append(said_by_harness | {"e": "did not stop", "s": 1})
    texts = ("ended by itself, with status 1", "had to be killed")
    assert missing(*((WRONG, f"pid {pid}", text) for text in texts)) == []
