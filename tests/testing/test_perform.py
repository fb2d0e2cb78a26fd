"""``perform``: one handler, called as the engine would."""

from __future__ import annotations

from typing import Any

import pytest

from django_ayework import Abort, Context, Defer, NotEncodable, work
from django_ayework.define.instructions import Queue, Result, Void
from django_ayework.errors import InvalidInstruction
from django_ayework.models import Work
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db


@work(name="t.perform.children")
def children(ctx: Context):
    return ctx.queue([add(a=1, b=2), add(a=3, b=4)])


@work(name="t.perform.void")
def void(ctx: Context):
    return ctx.void()


@work(name="t.perform.plain")
async def plain(items: list[int]) -> list[int]:
    items.append(0)
    return items


def test_the_result_and_the_instruction(perform: Any) -> None:
    performed = perform(add(a=1, b=2))
    assert performed.result == 3
    assert isinstance(performed.instruction, Result)
    assert performed.error is None


def test_a_plain_value_is_a_result_without_an_instruction(perform: Any) -> None:
    performed = perform(plain(items=[1]))
    assert (performed.result, performed.instruction, performed.error) == ([1, 0], None, None)


def test_the_input_is_stored_and_read_back(perform: Any) -> None:
    given = [1, 2]
    perform(plain(items=given))
    assert given == [1, 2]
    with pytest.raises(NotEncodable):
        perform(plain(items=[object()]))  # type: ignore[list-item]


def test_children_are_built_and_not_queued(perform: Any) -> None:
    performed = perform(children())
    assert performed.result is None
    assert isinstance(performed.instruction, Queue)
    assert [item.input for item in performed.instruction.items] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert Work.objects.count() == 0
    assert isinstance(perform(void()).instruction, Void)


def test_an_error_is_handed_over(perform: Any) -> None:
    performed = perform(fail(message="no luck"))
    assert isinstance(performed.error, RuntimeError)
    assert str(performed.error) == "no luck"


@pytest.mark.parametrize("raised", [Defer(delay=5), Abort("no card")], ids=["defer", "abort"])
def test_so_is_what_the_handler_says(perform: Any, raised: Exception) -> None:
    @work(name="t.perform.says")
    def says() -> None:
        raise raised

    assert perform(says()).error is raised


def test_so_is_what_the_engine_has_to_say(perform: Any) -> None:
    @work(name="t.perform.forgetful")
    def forgetful(ctx: Context) -> None:
        ctx.result(1)

    @work(name="t.perform.unstorable")
    def unstorable() -> Any:
        return object()

    assert isinstance(perform(forgetful()).error, InvalidInstruction)
    assert isinstance(perform(unstorable()).error, NotEncodable)


def test_the_handler_can_be_shown_a_later_attempt(perform: Any) -> None:
    @work(name="t.perform.attempt")
    def attempt(ctx: Context) -> list[Any]:
        return [ctx.attempt, ctx.type, ctx.signal.aborted, ctx.claim("once")]

    assert perform(attempt(), attempt=3).result == [3, "t.perform.attempt", False, True]
    assert perform(attempt()).result == [1, "t.perform.attempt", False, False]
