"""``@batch_work``: what it makes of a function, and what it refuses."""

from __future__ import annotations

import pytest

from django_ayework import BatchItem, Context, Retry, WorkRequest, batch_work, enqueue
from django_ayework.errors import ImproperWork, InvalidOption
from django_ayework.models import Work
from tests.batches.works import three

#: Options of one work.
REFUSED = ["atomic", "interrupt", "interval", "log_context"]
REFUSED += ["middleware", "skip_queue", "strict_return", "then"]


def handler(items: list[BatchItem[str]]) -> list[str]:
    return [item.input for item in items]


def test_a_call_has_exactly_one_input():
    request = three(5)
    assert isinstance(request, WorkRequest)
    assert (request.type, dict(request.input)) == ("batches.three", {"input": 5})
    with pytest.raises(TypeError, match=r"batches.three: missing a required argument: 'input'"):
        three()
    with pytest.raises(TypeError, match=r"batches.three: too many positional arguments"):
        three(1, 2)


def test_the_plain_function_can_be_called_with_items_that_nothing_changes():
    item = BatchItem(4, "w", 1)
    assert three.handler([item]) == [8]
    assert (item.input, item.id, item.attempt) == (4, "w", 1)
    with pytest.raises(AttributeError):
        item.input = "other"


def test_size_and_wait_have_defaults_and_options_of_any_work_are_taken():
    bare = batch_work(lambda items: items, name="t.batches.bare")
    options = {"queue": "slow", "priority": 3, "retry": Retry(attempts=2), "lease": 60}
    made = batch_work(size=7, max_wait=2, name="t.batches.made", **options)(handler)
    assert (bare.size, bare.max_wait) == (50, 0.1)
    assert (made.size, made.max_wait) == (7, 2.0)
    assert made.handler is handler
    assert made.constants == options


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "3", None])
def test_a_size_is_a_whole_number(size):
    with pytest.raises(InvalidOption, match="expected size to be a whole number, 1 or more, got: "):
        batch_work(size=size, name="t.batches.size")(handler)
    with pytest.raises(ValueError, match="max_wait"):
        batch_work(max_wait=-1, name="t.batches.wait")(handler)


@pytest.mark.parametrize("option", REFUSED)
def test_options_of_one_work_are_refused(option):
    with pytest.raises(
        ImproperWork, match=rf"^{option}= does not go with @batch_work: .*; use @work, or leave"
    ):
        batch_work(name="t.batches.refused", **{option: True})(handler)


def test_a_misspelt_option_is_refused_with_the_nearest():
    with pytest.raises(
        TypeError, match=r"'max_wiat' is not an option of @batch_work. Did you mean 'max_wait'?"
    ):
        batch_work(name="t.batches.misspelt", max_wiat=1)(handler)


def with_context(ctx: Context) -> list[str]: ...
def with_more(items: list[BatchItem[str]], more: int = 1) -> list[str]: ...
def with_none() -> list[str]: ...
def with_many(*items: BatchItem[str]) -> list[str]: ...
def with_names(*, items: list[BatchItem[str]]) -> list[str]: ...


@pytest.mark.parametrize("wrong", [with_more, with_none, with_many, with_names])
def test_a_handler_takes_the_list_of_items_and_nothing_else(wrong):
    with pytest.raises(
        ImproperWork, match=f"expected the handler {wrong.__name__}.* of a batch to have one parameter"
    ):
        batch_work(name="t.batches.wrong")(wrong)
    with pytest.raises(ImproperWork, match="takes no context, for its items are works of their own"):
        batch_work(name="t.batches.context")(with_context)


@pytest.mark.parametrize("wrong", ["text", int, three])
def test_only_functions_are_decorated(wrong):
    with pytest.raises(ImproperWork, match="expected @batch_work to decorate a function, got: "):
        batch_work(wrong)


def test_a_function_of_no_app_needs_a_name():
    function = type(handler)(handler.__code__, {"__name__": "somewhere.works"})
    with pytest.raises(
        ImproperWork, match=r'somewhere.works.handler is in no installed app.*@batch_work\(name="..."\)'
    ):
        batch_work(function)


@pytest.mark.django_db
class TestQueueing:
    def test_by_name_the_input_is_given_as_it_is(self):
        for input in (5, "text", [1, 2], {"a": 1}, 0, ""):
            handle = enqueue("batches.three", input)
            assert Work.objects.get(id=handle.id).input == Work.objects.get(id=enqueue(three(input)).id).input

    def test_by_name_an_input_is_required(self):
        with pytest.raises(
            TypeError, match=r"expected enqueue\('batches.three', input\) to have the one input"
        ):
            enqueue("batches.three")
        assert Work.objects.count() == 0

    def test_none_is_an_input_too(self, drain, stage):
        enqueue(three(None))
        stage.act = lambda items: [item.input is None for item in items]
        [state] = drain().states
        assert state.result is True

    def test_options_are_computed_from_the_input_itself(self):
        made = batch_work(name="t.batches.computed", options=lambda text: {"priority": len(text)})(handler)
        assert enqueue(made("four")).state().priority == 4

    def test_each_is_found_by_its_input(self, assert_enqueued, assert_not_enqueued):
        enqueue(three(5))
        assert_enqueued(three, input=5)
        assert_not_enqueued(three, input=6)
