"""What the fault injection relies on: its proxy, its reading of logs, its page."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from chaos import __main__ as command
from chaos import logs, report
from chaos.faults import FAULTS
from chaos.ledger import Ledger, read
from chaos.proxy import Proxy
from chaos.recorded import order
from chaos.run import Result
from chaos.servers import SERVERS

OUTAGE = """\
2026-01-01 10:00:00,000 ERROR django_ayework: the claiming loop failed and carries on (queue phase): gone
Traceback (most recent call last):
  File "x.py", line 1, in y
django.db.utils.OperationalError: gone
DETAIL: with a detail
2026-01-01 10:00:01,000 INFO django_ayework: Worker 1 stopped.
"""
FAILED = """\
2026-01-01 10:00:00,000 WARNING django_ayework: Work 1 (chaos.flaky) failed (attempt 1 of 2): again
Traceback (most recent call last):
  File "x.py", line 1, in y
chaos.works.Planned: as planned
"""
STRANGE = """\
Exception in thread settler:
Traceback (most recent call last):
  File "x.py", line 1, in y
KeyError: 'a'
"""


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it is sent."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=[client], daemon=True).start()

    def answer(client: socket.socket) -> None:
        with client:
            try:
                while data := client.recv(100):
                    client.sendall(data)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def ask(connection: socket.socket, seconds: float = 5.0) -> bytes:
    connection.settimeout(seconds)
    connection.sendall(b"a")
    return connection.recv(1)


def test_a_proxy_passes_on_what_is_said(echo):
    with Proxy(echo) as proxy, closing(socket.create_connection(("127.0.0.1", proxy.port))) as client:
        assert ask(client) == b"a"


def test_a_proxy_that_cuts_resets_connections_and_refuses_new_ones(echo):
    with Proxy(echo) as proxy, closing(socket.create_connection(("127.0.0.1", proxy.port))) as client:
        ask(client)
        proxy.refuses = True
        proxy.cut()
        with pytest.raises(ConnectionError):
            ask(client)
            ask(client)
        with closing(socket.create_connection(("127.0.0.1", proxy.port))) as other:
            assert other.recv(1) == b""


def test_a_connection_that_is_silent_stays_open_and_never_answers(echo):
    with Proxy(echo) as proxy, closing(socket.create_connection(("127.0.0.1", proxy.port))) as client:
        ask(client)
        for pair in proxy.pairs():
            pair.silence()
        with pytest.raises(TimeoutError):
            ask(client, 0.3)
        with closing(socket.create_connection(("127.0.0.1", proxy.port))) as other:
            assert ask(other) == b"a"


def test_a_proxy_can_delay(echo):
    with Proxy(echo) as proxy, closing(socket.create_connection(("127.0.0.1", proxy.port))) as client:
        proxy.delay = 0.01
        assert ask(client) == b"a"


def test_a_reported_outage_and_a_planned_failure_are_explained(tmp_path):
    (tmp_path / "worker-1.log").write_text(OUTAGE + FAILED)
    assert logs.unexplained(tmp_path, is_outage=True) == []


def test_an_outage_without_a_fault_of_the_database_is_not_explained(tmp_path):
    (tmp_path / "worker-1.log").write_text(OUTAGE + FAILED)
    [traceback] = logs.unexplained(tmp_path, is_outage=False)
    assert "the claiming loop failed" in traceback


def test_the_death_of_a_thread_is_not_explained(tmp_path):
    (tmp_path / "worker-1.log").write_text(STRANGE)
    [traceback] = logs.unexplained(tmp_path, is_outage=True)
    assert "KeyError" in traceback


def test_a_line_that_a_killed_process_has_not_finished_is_left_out(tmp_path):
    ledger = Ledger(tmp_path, "worker")
    ledger.write("start", id="a", n=1)
    ledger.write("ok", id="a", n=1)
    ledger.close()
    [file] = tmp_path.glob("*.jsonl")
    file.write_text(file.read_text()[:-5])
    recorded = order(read(tmp_path))
    assert recorded.gaps == [] and "a" in recorded.started and "a" not in recorded.ran


def test_lines_are_ordered_by_a_clock_that_all_processes_share(tmp_path):
    before = time.monotonic()
    ledger = Ledger(tmp_path, "worker")
    ledger.write("up")
    ledger.close()
    [line] = read(tmp_path)
    assert before - 0.001 <= line["t"] <= time.monotonic() + 0.001


def test_a_loss_makes_the_command_fail():
    outcome = command.Outcome(results=[Result("sqlite", "none", "1")])
    assert not outcome.is_bad
    for name in ("lost", "doubled", "stuck"):
        assert command.Outcome(results=[Result("sqlite", "none", "1", **{name: 1})]).is_bad


def test_the_page_has_its_marks():
    text = report.PAGE.read_text()
    for name in ("results", "deadlocks"):
        assert "new" in report.replaced(text, name, "new")
    with pytest.raises(report.NoPlace):
        report.replaced("", "results", "new")


def test_the_page_names_every_fault():
    text = report.PAGE.read_text()
    assert [name for name in FAULTS if f"`{name}`" not in text] == []


def test_a_table_has_a_line_for_each_run():
    skipped = Result("postgres", "clock", "1", title="clocks", skipped="not here")
    drawn = report.table([Result("sqlite", "none", "1", title="no fault", works=7), skipped])
    assert drawn.splitlines()[2] == "| no fault | SQLite | 0 | 7 | 0 | 0 | 0 | 0 | 0 |  | 0 |"
    assert "skipped: not here" in drawn.splitlines()[3]


def test_a_part_of_a_run_is_repeated_by_its_seed():
    options = command.parse(["--seed", "5", "--only", "sqlite", "--faults", "kill,stop", "--seconds", "3"])
    assert (options.seed, options.only, options.faults, options.seconds) == (
        "5",
        ["sqlite"],
        ["kill", "stop"],
        3,
    )
    assert command.parse([]).only == list(SERVERS)
    with pytest.raises(SystemExit):
        command.parse(["--faults", "earthquake"])


def test_a_command_that_has_tested_nothing_fails():
    assert command.Outcome().is_bad
    assert command.Outcome(results=[Result("sqlite", "disk", "1", skipped="not here")]).is_bad
