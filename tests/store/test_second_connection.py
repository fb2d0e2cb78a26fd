"""A second connection: what runs for others in a thread of the engine has a session of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext

import pytest
from django.db import connection, connections

from django_ayework.store.second_connection import SecondConnection
from django_ayework.store.sessions import bounded_statements, set_bounded
from django_ayework.store.threads import has_connected
from tests.worker.test_sessions import bounded, in_thread, is_pooled, unbounded

pytestmark = pytest.mark.django_db(transaction=True)


def in_engine(act: Callable[[SecondConnection], object]) -> object:
    """Do something in a thread that has a session of the engine's."""

    def run() -> object:
        second = SecondConnection()
        try:
            with bounded_statements():
                connection.ensure_connection()
                return act(second)
        finally:
            second.close()

    return in_thread(run)


def test_it_is_another_inside_and_stays_the_same():
    def look(second: SecondConnection) -> list[object]:
        found = [connections["default"]]
        for _ in range(2):
            with second:
                found.append(connections["default"])
            found.append(connections["default"])
        return found

    engines, first, after, second, at_last = in_engine(look)
    assert engines is after is at_last
    assert first is second is not engines


@pytest.mark.vendors("postgresql", "mysql")
@pytest.mark.skipif(is_pooled, reason="sessions are lent here")
def test_it_is_set_up_as_the_project_says():
    def look(second: SecondConnection) -> list[object]:
        with second:
            inside = unbounded()
        connections["default"].close()
        return [inside, unbounded()]

    assert in_engine(look) == [in_thread(unbounded), in_thread(bounded)]


@pytest.mark.parametrize("within", [bounded_statements, nullcontext])
def test_it_leaves_the_thread_as_it_was(within):
    def enter() -> tuple[bool, bool]:
        second = SecondConnection()
        with within():
            with second:
                connection.ensure_connection()
            second.close()
            found = set_bounded(False), has_connected()
            set_bounded(found[0])
            return found

    assert in_thread(enter) == (within is bounded_statements, False)


def test_it_is_only_opened_when_it_is_used():
    def look(second: SecondConnection) -> list[object]:
        with second:
            before = has_connected(), connections["default"].connection
            connections["default"].ensure_connection()
            used = has_connected()
        with second:
            again = has_connected()
        return [before, used, again, has_connected()]

    assert in_engine(look) == [(False, None), True, True, True]


def test_one_that_was_given_up_inside_is_not_used_again():
    """So it is when a handler was interrupted."""

    def look(second: SecondConnection) -> list[object]:
        with second:
            given_up = connections["default"]
            del connections["default"]
        with second:
            return [given_up is connections["default"], given_up is second.engines]

    assert in_engine(look) == [False, False]


def test_it_is_closed_with_the_thread():
    def look(second: SecondConnection) -> object:
        with second:
            connections["default"].ensure_connection()
            return connections["default"]

    assert in_engine(look).connection is None


def test_threads_do_not_share_it():
    made: list[object] = []

    def look(second: SecondConnection) -> None:
        with second:
            made.append((threading.get_ident(), connections["default"]))

    in_engine(look)
    in_engine(look)
    assert made[0][1] is not made[1][1]
