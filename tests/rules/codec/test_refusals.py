"""What cannot be stored is refused where it is passed, with the way to it and the way out."""

import dataclasses
import pathlib
import sys
from collections import deque
from enum import Enum

import pytest
from django.utils.datastructures import MultiValueDict
from django.utils.functional import SimpleLazyObject

from django_ayework.errors import AyeworkError, NotEncodable
from django_ayework.rules.codec import encode


class Product:
    """Looks like an instance of a model."""

    _meta = object()
    pk = None


class Products:
    """Looks like a queryset."""

    model = Product
    query = "SELECT"

    def __iter__(self):
        raise RuntimeError("no database in here")


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Price:
    amount: int


class Schema:
    """Looks like a pydantic model."""

    def model_dump(self):
        return {}

    def __iter__(self):
        return iter(())


class Moody:
    """Answers no question."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise RuntimeError("who asks?")


class Members(list):
    """A list that is hashable, as long as it lives."""

    __hash__ = object.__hash__


class Bag(set):
    __hash__ = object.__hash__


class Table(dict):
    __hash__ = object.__hash__


class Shade(str, Enum):  # noqa: UP042
    DARK = "dark"


class Twin(str):
    """A text equal to none."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        return self is other


async def coroutine():
    pass


def refused(value, path="input"):
    with pytest.raises(NotEncodable) as caught:
        encode(value, path)
    return caught.value


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (
            Product(),
            "Product (a model instance) at input; pass its primary key (.pk) and load it in the handler",
        ),
        (
            SimpleLazyObject(Product),
            "SimpleLazyObject (a model instance) at input; "
            "pass its primary key (.pk) and load it in the handler",
        ),
        (
            Products(),
            "Products (a queryset) at input; pass a list of primary keys and load them in the handler",
        ),
        (Product, "type (a class) at input; pass its dotted name"),
        (Colour.RED, "Colour (an enum member) at input; pass its .value"),
        (
            Price(1),
            "Price (a dataclass) at input; pass dataclasses.asdict(…) of it, or describe it in a CustomType",
        ),
        (Schema(), "Schema (a pydantic model) at input; pass its model_dump()"),
        (pathlib.PurePosixPath("a"), "PurePosixPath (a path) at input; pass str(…) of it"),
        (sys.stdin, f"{type(sys.stdin).__name__} (a file) at input; save it and pass its name"),
        ({}.keys(), "dict_keys (an iterable) at input; pass list(…) of it"),
        (deque([1]), "deque (an iterable) at input; pass list(…) of it"),
        (print, "builtin_function_or_method (a callable) at input; pass its dotted name"),
        (object(), "object at input; pass plain data, or describe its class in a CustomType"),
        (1j, "complex at input; pass plain data, or describe its class in a CustomType"),
    ],
)
def test_the_message_says_what_to_pass_instead(value, got):
    assert str(refused(value)) == f"expected a value that can be stored, got: {got}"


def test_an_object_that_answers_no_question_is_refused():
    assert "got: Moody at input; pass plain data" in str(refused(Moody()))


def test_an_awaitable_is_refused():
    waiting = coroutine()
    assert "coroutine (an awaitable) at input; await it first" in str(refused(waiting))
    waiting.close()


def test_a_lazy_object_that_cannot_be_loaded_is_refused_all_the_same():
    assert "got: SimpleLazyObject" in str(refused(SimpleLazyObject(lambda: 1 / 0)))


def test_the_refusal_is_a_type_error_that_carries_the_path():
    error = refused([object()], "order")
    assert isinstance(error, TypeError)
    assert isinstance(error, AyeworkError)
    assert error.path == "order[0]"
    assert error.__cause__ is None
    assert error.__suppress_context__


BAD = object()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (BAD, "order"),
        ({"lines": [1, 2, BAD]}, "order['lines'][2]"),
        ({"lines": ((BAD,),)}, "order['lines'][0][0]"),
        ({3: {"it's": BAD}}, """order[3]["it's"]"""),
        ({Shade.DARK: BAD}, "order['dark']"),
        ({(1, "a"): BAD}, "order[(1, 'a')]"),
        ({"x": {BAD}}, "order['x']{…}"),
        ([frozenset([(1, BAD)])], "order[0]{…}[1]"),
        ({"x": {BAD: 1}}, "key of order['x']"),
        ({"x": {(1, BAD): 1}}, "key of order['x']"),
        ({"x": {(1, frozenset([BAD])): 1}}, "key of order['x']"),
        ({"k" * 100: BAD}, "order['" + "k" * 58 + "…]"),
    ],
)
def test_the_path_leads_to_the_culprit(value, path):
    error = refused(value, "order")
    assert error.path == path
    assert f" at {path}; " in str(error)


def test_keys_that_cannot_be_shown_do_not_get_in_the_way():
    assert refused({10**5000: BAD}).path == "input[<int>]"
    assert refused({Moody(): 1}).path == "key of input"


def test_a_long_path_is_cut_in_the_middle():
    value = BAD
    for number in range(60):
        value = {f"level-{number}": value}
    path = refused(value).path
    assert len(path) < 200
    assert path.startswith("input['level-59']")
    assert path.endswith("['level-0']")


def test_a_list_inside_itself_is_refused():
    loop = {"self": []}
    loop["self"].append(loop)
    assert str(refused(loop)) == (
        "expected data without loops, got: dict that contains itself at input['self'][0]; "
        "pass an id in its place"
    )


def test_a_loop_through_rich_values_is_refused():
    loop = []
    loop.append((loop,))
    assert refused(loop).path == "input[0][0]"


def test_a_loop_of_many_branches_is_refused_at_once():
    loop = []
    loop.extend([loop] * 10)
    assert refused(loop).path == "input[0]"


@pytest.mark.parametrize(
    "leaf", [1, BAD, (), frozenset()], ids=["plain", "unsupported", "tuple", "frozenset"]
)
@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: (v,), lambda v: {"a": v}, lambda v: {1: v}, lambda v: frozenset([v])]
)
@pytest.mark.parametrize("levels", [101, 5_000])
def test_bottomless_nesting_is_refused(leaf, wrap, levels):
    value = leaf
    for _ in range(levels):
        value = wrap(value)
    assert "expected at most 100 levels of nesting, got: another " in str(refused(value))


@pytest.mark.parametrize("spare", range(20, 70, 5))
def test_a_stack_that_is_almost_used_up_is_no_crash(spare):
    value = (1,)
    for _ in range(50):
        value = [value]
    with pytest.raises(NotEncodable, match="levels of nesting"):
        at_depth(sys.getrecursionlimit() - spare - depth_of_stack(), lambda: encode(value))


def at_depth(levels, call):
    return at_depth(levels - 1, call) if levels > 0 else call()


def depth_of_stack():
    frame, depth = sys._getframe(), 0
    while frame := frame.f_back:
        depth += 1
    return depth


@pytest.mark.parametrize(
    "wrap", [lambda v: {v}, lambda v: frozenset([(v,)]), lambda v: {v: 1}, lambda v: {(1, v): 1}]
)
@pytest.mark.parametrize(
    ("value", "instead"),
    [(Members([1]), "a tuple"), (Bag([1]), "a frozenset"), (Table(a=1), "a tuple of pairs")],
)
def test_what_would_not_be_hashable_when_read_is_refused(wrap, value, instead):
    error = str(refused(wrap(value)))
    name = type(value).__name__
    assert f"expected a value that is still hashable when it is read back, got: {name} at " in error
    assert error.endswith(f"; pass {instead}")


def test_outside_keys_and_sets_the_same_value_is_welcome():
    assert encode([{(1,): Members([1])}, frozenset([1]), Members([2])])


def test_keys_that_are_stored_alike_are_refused():
    error = refused({"x": {ValueError("a"): 1, ValueError("a"): 2}})
    assert str(error) == (
        "expected keys that differ when stored, got: two ValueError keys that are written alike "
        "at key of input['x']; pass a list of pairs"
    )
    assert "two Twin keys" in str(refused({Twin("a"): 1, Twin("a"): 2}))


def test_a_form_with_many_values_is_not_cut_to_the_last_ones():
    error = refused([MultiValueDict({"tag": ["a", "b"]})])
    assert str(error) == (
        "expected a mapping with one value per key, got: MultiValueDict at input[0]; "
        "pass dict(….lists()) to keep all values, or ….dict() for the last ones"
    )


def test_the_default_name_of_the_root():
    with pytest.raises(NotEncodable, match=r" at value\[0\]; "):
        encode([BAD])
