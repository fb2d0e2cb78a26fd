"""``@batch_work``: what it makes of a function, and what it refuses."""

import pytest

from django_ayework import BatchItem, Context, Retry, WorkRequest, batch_work, enqueue
from django_ayework.errors import ImproperWork, InvalidOption
from django_ayework.models import Work
from tests.batches.works import three

#: Options of one work.
OF_ONE_WORK = {"atomic", "interrupt", "interval", "log_context"}
OF_ONE_WORK |= {"middleware", "skip_queue", "strict_return", "then"}


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


def with_context(ctx: Context) -> list[str]: ...
def with_more(items: list[BatchItem[str]], more: int = 1) -> list[str]: ...
def with_none() -> list[str]: ...
def with_many(*items: BatchItem[str]) -> list[str]: ...
def with_names(*, items: list[BatchItem[str]]) -> list[str]: ...


NOT_OF_AN_APP = type(handler)(handler.__code__, {"__name__": "somewhere.works"})
SIZE = "expected size to be a whole number, 1 or more, got: "
NO_FUNCTION = "expected @batch_work to decorate a function, got: "
ONE_PARAMETER = "expected the handler {}.* of a batch to have one parameter"


@pytest.mark.parametrize(
    ("options", "decorated", "error", "message"),
    [
        *(({"size": size}, handler, InvalidOption, SIZE) for size in (0, -1, 1.5, True, "3", None)),
        ({"max_wait": -1}, handler, ValueError, "max_wait"),
        *(
            (
                {name: True},
                handler,
                ImproperWork,
                rf"^{name}= does not go with @batch_work: .*; use @work, or",
            )
            for name in sorted(OF_ONE_WORK)
        ),
        (
            {"max_wiat": 1},
            handler,
            TypeError,
            r"'max_wiat' is not an option of @batch_work. Did you mean 'max_wait'?",
        ),
        *(
            ({}, wrong, ImproperWork, ONE_PARAMETER.format(wrong.__name__))
            for wrong in (with_more, with_none, with_many, with_names)
        ),
        ({}, with_context, ImproperWork, "takes no context, for its items are works of their own"),
        *(({}, wrong, ImproperWork, NO_FUNCTION) for wrong in ("text", int, three)),
        (
            {"name": None},
            NOT_OF_AN_APP,
            ImproperWork,
            r'somewhere.works.handler is in no installed app.*@batch_work\(name="..."\)',
        ),
    ],
)
def test_what_cannot_be_a_batch_is_refused(options, decorated, error, message):
    with pytest.raises(error, match=message):
        batch_work(**{"name": "t.batches.refused", **options})(decorated)


@pytest.mark.django_db
class TestQueueing:
    @pytest.mark.parametrize("input", [5, "text", [1, 2], {"a": 1}, 0, ""])
    def test_by_name_the_input_is_given_as_it_is(self, input):
        enqueue("batches.three", input)
        enqueue(three(input))
        assert Work.objects.count() == 2
        assert Work.objects.values("input").distinct().count() == 1

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
