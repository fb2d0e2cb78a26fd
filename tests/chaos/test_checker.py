"""The checker of the fault injection finds what was planted in a run without faults."""

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from chaos import recorded, tables
from chaos.checker import DOUBLED, LOST, STUCK, WRONG, Case, Finding, check
from chaos.faults import Nothing
from chaos.ledger import Line, read
from chaos.run import Run
from chaos.servers import SQLite

pytestmark = pytest.mark.vendors("sqlite")
SECONDS = 2.0


class Taken(NamedTuple):
    """A run: its database, and its ledgers."""

    path: Path
    lines: list[Line]


@pytest.fixture(scope="module")
def taken(tmp_path_factory) -> Taken:
    """A run without faults, of real processes."""
    server = SQLite(tmp_path_factory.mktemp("server"))
    server.install()
    run = Run(server, Nothing, "1", tmp_path_factory.mktemp("run"))
    run.carry_out(SECONDS)
    run.ledger.close()
    return Taken(server.path, read(run.folder))


@pytest.fixture
def database(taken: Taken, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A copy of the run's database."""
    shutil.copy(taken.path, tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy", isolation_level=None)) as connection:
        yield connection


@pytest.fixture
def lines(taken: Taken) -> list[Line]:
    """A copy of the run's ledgers."""
    return [dict(line) for line in taken.lines]


@pytest.fixture
def found(database, lines) -> Callable[[], list[Finding]]:
    """What the checker finds."""
    return lambda: check(Case(recorded.order(lines), tables.read(database.cursor())))


def one(database: sqlite3.Connection, statement: str) -> Any:
    row = database.execute(statement).fetchone()
    assert row, f"the run has nothing of this kind: {statement}"
    return row[0]


def some_work(database: sqlite3.Connection, type: str) -> str:
    return one(database, f"SELECT id FROM django_ayework_work WHERE type = '{type}' AND ended_at IS NOT NULL")


def copy_row(database: sqlite3.Connection, table: str, source: str, /, **changes: Any) -> None:
    cursor = database.execute(f"SELECT * FROM {table} WHERE id = ?", [source])
    row = dict(zip([column[0] for column in cursor.description], cursor.fetchone(), strict=True)) | changes
    marks = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def said(findings: list[Finding], category: str, id: str, text: str) -> bool:
    return any(f.category == category and f.id == id and text in f.text for f in findings)


def test_nothing_is_found_in_a_run_that_was_left_alone(found, lines):
    assert found() == []
    kinds = {line["kind"] for line in lines if line["e"] == "will"}
    assert len(kinds) >= 8 and any(line["e"] == "rolled back" for line in lines)


DELETE = "DELETE FROM django_ayework_work WHERE id = ?"
SET_BACK = "UPDATE django_ayework_work SET status = 'pending', ended_at = NULL WHERE id = ?"
DIE = "UPDATE django_ayework_work SET status = 'dead', reason = 'exhausted' WHERE id = ?"
AGAIN = "INSERT INTO chaos_effect (work, kind) VALUES (?, 'once')"
UNDO = "DELETE FROM chaos_effect WHERE work = ?"


@pytest.mark.parametrize(
    ("types", "statement", "expected"),
    [
        ("plain atomic batch fan", DELETE, [(LOST, "was committed, and is not there")]),
        (
            "plain",
            SET_BACK,
            [(STUCK, "is still pending"), (DOUBLED, "announced as ended, and has not ended")],
        ),
        ("plain", DIE, [(LOST, "is dead (exhausted)")]),
        ("atomic staged join", AGAIN, [(DOUBLED, "has 2 effects")]),
        ("atomic", UNDO, [(LOST, "has 0 effects")]),
    ],
    ids=["deleted", "set back", "dead for no reason", "a second effect", "an effect that is gone"],
)
def test_a_work_that_is_not_as_it_was_left_is_named(database, found, types, statement, expected):
    ids = [some_work(database, f"chaos.{type}") for type in types.split()]
    for id in ids:
        database.execute(statement, [id])
    findings = found()
    wanted = [(category, id, text) for id in ids for category, text in expected]
    assert [each for each in wanted if not said(findings, *each)] == []


@pytest.mark.parametrize(("change", "category"), [("+ 1", DOUBLED), ("- 1", LOST)])
def test_a_groups_value_is_exact(database, found, change, category):
    id = one(database, "SELECT id FROM django_ayework_group WHERE value IS NOT NULL")
    database.execute(f"UPDATE django_ayework_group SET value = value {change} WHERE id = ?", [id])
    assert said(found(), category, id, "the value of the group")


def test_a_work_that_a_gate_has_released_twice_is_doubled(database, found):
    id = some_work(database, "chaos.join")
    root = one(database, f"SELECT group_id FROM django_ayework_work WHERE id = '{id}'")
    copy_row(database, "django_ayework_work", id, id="planted")
    assert said(found(), DOUBLED, root, "chaos.join of the fan-out: 2 instead of 1")


def test_a_gate_that_has_released_nothing_has_lost_it(database, found):
    id = some_work(database, "chaos.join")
    root = one(database, f"SELECT group_id FROM django_ayework_work WHERE id = '{id}'")
    database.execute("DELETE FROM django_ayework_work WHERE id = ?", [id])
    assert said(found(), LOST, root, "chaos.join of the fan-out: 0 instead of 1")


def test_a_chain_has_each_step(database, found):
    id = one(database, "SELECT chain_id FROM django_ayework_work WHERE chain_index = 1")
    database.execute("DELETE FROM django_ayework_work WHERE chain_id = ? AND chain_index = 1", [id])
    assert said(found(), LOST, id, "steps of the chain")


def test_a_work_that_was_rolled_back_must_not_be_there(database, found, lines):
    call = next(line["p"] for line in lines if line["e"] == "rolled back")
    id = next(line["ids"][0] for line in lines if line["e"] == "will" and line["p"] == call)
    copy_row(database, "django_ayework_work", some_work(database, "chaos.plain"), id=id)
    assert said(found(), DOUBLED, id, "was rolled back, and is there")


def test_a_work_of_nobody_is_doubled(database, found):
    copy_row(database, "django_ayework_work", some_work(database, "chaos.plain"), id="planted")
    assert said(found(), DOUBLED, "planted", "was queued by nobody")


def test_two_live_works_of_one_key_are_doubled(database, found):
    id = some_work(database, "chaos.keyed")
    copy_row(database, "django_ayework_work", id, id="planted")
    assert any(f.category == DOUBLED and "there was another live work" in f.text for f in found())


def test_an_attempt_that_nothing_explains_is_wrong(database, found):
    id = some_work(database, "chaos.plain")
    database.execute("UPDATE django_ayework_work SET attempt = attempt + 1 WHERE id = ?", [id])
    assert said(found(), WRONG, id, "counts 2 attempts; 1 are known")
    worker = one(database, "SELECT id FROM django_ayework_workerprocess")
    database.execute(
        "INSERT INTO django_ayework_attempt (work_id, number, worker, outcome, error, traceback, ended_at) "
        "VALUES (?, 1, ?, 'lost', 'worker lost', '', '2026-01-01')",
        [id, worker],
    )
    assert said(found(), WRONG, id, "was spent (lost)")


def test_a_line_of_a_ledger_that_is_missing_is_named(found, lines):
    lines.remove(random.Random(1).choice([line for line in lines if line["e"] == "start"]))
    assert any(f.category == LOST and "lacks the lines" in f.text for f in found())


def test_a_success_without_a_run_is_lost(database, found, lines):
    id = some_work(database, "chaos.plain")
    lines[:] = [line for line in lines if not (line["e"] == "ok" and line["id"] == id)]
    assert said(found(), LOST, id, "no handler has ended well")


def test_a_call_without_an_outcome_is_named(found, lines):
    dropped = next(line for line in lines if line["e"] == "committed")
    lines.remove(dropped)
    assert said(found(), LOST, dropped["p"], "does not say what became of the call")


def test_a_second_settlement_is_doubled(found, lines):
    line = next(line for line in lines if line["e"] == "settled")
    lines.append(line)
    assert said(found(), DOUBLED, line["id"], "was settled 2 times")


def test_a_start_before_its_time_is_wrong(found, lines):
    calls = [line for line in lines if line["e"] == "will" and line["kind"] == "delayed"]
    committed = {line["p"] for line in lines if line["e"] == "committed"}
    call = next(line for line in calls if line["p"] in committed)
    call["facts"] = {"delay": call["facts"]["delay"] + 3600}
    assert said(found(), WRONG, call["ids"][0], "too early")


def test_a_worker_that_died_by_itself_is_named(found, lines):
    pid = next(line["pid"] for line in lines if line["e"] == "up" and "worker" in line)
    said_by_harness = {"t": 0.0, "pid": 1, "s": 0, "file": "planted", "worker_pid": pid}
    lines[:] = [line for line in lines if line["e"] not in ("signal", "worker ended")]
    lines.append(said_by_harness | {"e": "worker ended", "status": 1})
    lines.append(said_by_harness | {"e": "did not stop", "s": 1})
    assert said(found(), WRONG, f"pid {pid}", "ended by itself, with status 1")
    assert said(found(), WRONG, f"pid {pid}", "had to be killed")
