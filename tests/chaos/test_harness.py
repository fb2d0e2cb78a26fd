"""What the fault injection relies on: its proxy, its reading of logs, its page."""

import socket
import threading
import time
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

TRACEBACK = """Traceback (most recent call last):
  File "x.py", line 1, in y
"""
OUTAGE = f"""\
2026-01-01 10:00:00,000 ERROR django_ayework: the claiming loop failed and carries on (queue phase): gone
{TRACEBACK}django.db.utils.OperationalError: gone
DETAIL: with a detail
2026-01-01 10:00:01,000 INFO django_ayework: Worker 1 stopped.
"""
FAILED = f"""\
2026-01-01 10:00:00,000 WARNING django_ayework: Work 1 (chaos.flaky) failed (attempt 1 of 2): again
{TRACEBACK}chaos.works.Planned: as planned
"""
STRANGE = f"Exception in thread settler:\n{TRACEBACK}KeyError: 'a'\n"


@pytest.fixture
def proxy():
    """A proxy before a server that sends back what it is sent."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        try:
            while True:
                threading.Thread(target=answer, args=[server.accept()[0]], daemon=True).start()
        except OSError:
            return

    def answer(client):
        with client:
            try:
                while data := client.recv(100):
                    client.sendall(data)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    with Proxy(server.getsockname()[1]) as proxy:
        yield proxy
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def connected(proxy):
    return closing(socket.create_connection(("127.0.0.1", proxy.port)))


def ask(connection, seconds=5.0):
    connection.settimeout(seconds)
    connection.sendall(b"a")
    return connection.recv(1)


def test_a_proxy_passes_on_what_is_said_and_can_delay_it(proxy):
    with connected(proxy) as client:
        assert ask(client) == b"a"
        proxy.delay = 0.01
        assert ask(client) == b"a"


def test_a_proxy_that_cuts_resets_connections_and_refuses_new_ones(proxy):
    with connected(proxy) as client:
        ask(client)
        proxy.refuses = True
        proxy.cut()
        with pytest.raises(ConnectionError):
            ask(client)
            ask(client)
        with connected(proxy) as other:
            assert other.recv(1) == b""


def test_a_connection_that_is_silent_stays_open_and_never_answers(proxy):
    with connected(proxy) as client:
        ask(client)
        for pair in proxy.pairs():
            pair.silence()
        with pytest.raises(TimeoutError):
            ask(client, 0.3)
        with connected(proxy) as other:
            assert ask(other) == b"a"


@pytest.mark.parametrize(
    ("log", "is_outage", "unexplained"),
    [
        (OUTAGE + FAILED, True, []),
        (OUTAGE + FAILED, False, ["the claiming loop failed"]),
        (STRANGE, True, ["KeyError"]),
    ],
    ids=["a reported outage and a planned failure", "an outage without a fault", "the death of a thread"],
)
def test_what_is_not_explained_is_found_in_the_logs(tmp_path, log, is_outage, unexplained):
    (tmp_path / "worker-1.log").write_text(log)
    found = logs.unexplained(tmp_path, is_outage=is_outage)
    assert [text in traceback for text, traceback in zip(unexplained, found, strict=True)] == [True] * len(
        found
    )


def test_a_ledger_has_the_clock_that_all_share_and_lines_that_are_not_finished_are_left_out(tmp_path):
    before = time.monotonic()
    ledger = Ledger(tmp_path, "worker")
    ledger.write("start", id="a", n=1)
    ledger.write("ok", id="a", n=1)
    ledger.close()
    assert before - 0.001 <= read(tmp_path)[0]["t"] <= time.monotonic() + 0.001
    [file] = tmp_path.glob("*.jsonl")
    file.write_text(file.read_text()[:-5])  # as a killed process leaves it
    recorded = order(read(tmp_path))
    assert recorded.gaps == [] and "a" in recorded.started and "a" not in recorded.ran


def test_a_loss_makes_the_command_fail_and_so_does_a_command_that_has_tested_nothing():
    outcome = command.Outcome(results=[Result("sqlite", "none", "1")])
    assert not outcome.is_bad
    for name in ("lost", "doubled", "stuck"):
        assert command.Outcome(results=[Result("sqlite", "none", "1", **{name: 1})]).is_bad
    assert command.Outcome().is_bad
    assert command.Outcome(results=[Result("sqlite", "disk", "1", skipped="not here")]).is_bad


def test_the_page_has_its_marks_and_names_every_fault():
    text = report.PAGE.read_text()
    for name in ("results", "deadlocks"):
        assert "new" in report.replaced(text, name, "new")
    with pytest.raises(report.NoPlace):
        report.replaced("", "results", "new")
    assert [name for name in FAULTS if f"`{name}`" not in text] == []


def test_a_table_has_a_line_for_each_run():
    skipped = Result("postgres", "clock", "1", title="clocks", skipped="not here")
    drawn = report.table([Result("sqlite", "none", "1", title="no fault", works=7), skipped])
    assert drawn.splitlines()[2] == "| no fault | SQLite | 0 | 7 | 0 | 0 | 0 | 0 | 0 |  | 0 |"
    assert "skipped: not here" in drawn.splitlines()[3]


def test_a_part_of_a_run_is_repeated_by_its_seed():
    options = command.parse(["--seed", "5", "--only", "sqlite", "--faults", "kill,stop", "--seconds", "3"])
    assert (options.seed, options.only) == ("5", ["sqlite"])
    assert (options.faults, options.seconds) == (["kill", "stop"], 3)
    assert command.parse([]).only == list(SERVERS)
    with pytest.raises(SystemExit):
        command.parse(["--faults", "earthquake"])
