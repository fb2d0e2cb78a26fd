"""What a supervisor sees to before it has a child."""

from __future__ import annotations

import os
import threading
from contextlib import closing

import pytest
from django.db import connection

from django_ayework.worker import supervisor as supervisor_module
from django_ayework.worker.process import SUPERVISED, inherited
from django_ayework.worker.supervisor import Supervisor, can_fork, close_connections, heartbeat_pipe


def test_no_connection_is_shared_with_a_child():
    connection.ensure_connection()
    close_connections()
    assert connection.connection is None


def test_it_does_not_fork_when_another_thread_would_be_cut_off():
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        assert not can_fork()
    finally:
        over.set()
        thread.join()


def test_it_does_not_fork_on_macos(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervisor_module.threading, "active_count", lambda: 1)
    assert can_fork()
    monkeypatch.setattr(supervisor_module.sys, "platform", "darwin")
    assert not can_fork()


def test_what_a_child_inherits_is_not_passed_on_to_its_own_children(monkeypatch: pytest.MonkeyPatch):
    ours, theirs = heartbeat_pipe()
    with ours:
        monkeypatch.setenv(SUPERVISED, f"{theirs.detach()},3")
        supervised = inherited()
        assert supervised is not None
        end, number = supervised
        with end:
            assert (number, end.get_inheritable()) == (3, False)
    assert SUPERVISED not in os.environ
    assert inherited() is None


def test_a_system_without_room_for_another_process_is_given_time(monkeypatch: pytest.MonkeyPatch, caplog):
    def fail(*args):
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(supervisor_module, "start_child", fail)
    supervisor = Supervisor(1, main=lambda end, number: 0)
    with closing(supervisor._pipe):
        for _ in range(3):
            supervisor._fill_slots()
    assert [record.getMessage().partition(" (see ")[0] for record in caplog.records] == [
        "Process 1 could not be started (Resource temporarily unavailable); next try at once.",
        "Process 1 could not be started (Resource temporarily unavailable); next try in 1 s.",
    ]
    health, signs = supervisor.report()
    assert (health.live, health.ready, signs) == (True, False, [])
    assert health.reasons == ("process 1: it is to be started in 1 s",)
