"""What cannot be stored is refused with its path and a remedy. Custom types extend what can."""

import copy
import dataclasses
import pathlib
import pickle
import sys
from collections import deque
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path, PurePosixPath

import pytest
from django.http import HttpRequest
from django.utils.datastructures import MultiValueDict
from django.utils.functional import SimpleLazyObject

from django_ayework import get_handle
from django_ayework.errors import AyeworkError, NotDecodable, NotEncodable
from django_ayework.rules.codec import CustomType, RichJSON, encode
from tests.app.works import add


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


#: Collections that are hashable, as long as they live.
Members, Bag, Table = (
    type(name, (kind,), {"__hash__": object.__hash__})
    for name, kind in (("Members", list), ("Bag", set), ("Table", dict))
)
Shade = Enum("Shade", {"DARK": "dark"}, type=str)


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


PLAIN = "; pass plain data, or describe its class in a CustomType"
LAZY = " (a lazy object)"
REMEDIES = {
    "": PLAIN,
    " (a model instance)": "; pass its primary key (.pk) and load it in the handler",
    " (a queryset)": "; pass a list of primary keys and load them in the handler",
    LAZY: "; pass what it stands for, such as str(…) of it",
    " (a class)": "; pass its dotted name",
    " (a callable)": "; pass its dotted name",
    " (an enum member)": "; pass its .value",
    " (a dataclass)": "; pass dataclasses.asdict(…) of it, or describe it in a CustomType",
    " (a pydantic model)": "; pass its model_dump()",
    " (a path)": "; pass str(…) of it",
    " (a file)": "; save it and pass its name",
    " (a request)": "; pass what the handler needs of it, such as the primary key of its user",
    " (an iterable)": "; pass list(…) of it",
}


@pytest.mark.parametrize(("value", "name", "kind"), [
    (Product(), "Product", " (a model instance)"),
    (SimpleLazyObject(Product), "SimpleLazyObject", " (a model instance)"),
    (SimpleLazyObject(lambda: 1 / 0), "SimpleLazyObject", ""),
    (SimpleLazyObject(lambda: "tea"), "SimpleLazyObject", LAZY),
    (SimpleLazyObject(lambda: 5), "SimpleLazyObject", LAZY),
    (Products(), "Products", " (a queryset)"), (Product, "type", " (a class)"),
    (Colour.RED, "Colour", " (an enum member)"), (Price(1), "Price", " (a dataclass)"),
    (Schema(), "Schema", " (a pydantic model)"), (pathlib.PurePosixPath("a"), "PurePosixPath", " (a path)"),
    (sys.stdin, type(sys.stdin).__name__, " (a file)"), (HttpRequest(), "HttpRequest", " (a request)"),
    ({}.keys(), "dict_keys", " (an iterable)"), (deque([1]), "deque", " (an iterable)"),
    (print, "builtin_function_or_method", " (a callable)"),
    (object(), "object", ""), (1j, "complex", ""), (Moody(), "Moody", ""),
], ids=range(19))  # fmt: skip
def test_the_message_names_a_remedy(value, name, kind):
    message = f"expected a value that can be stored, got: {name}{kind} at input{REMEDIES[kind]}"
    assert str(refused(value)) == message


def test_handles_built_works_and_awaitables_are_refused():
    waiting = coroutine()
    assert "(a handle) at input; pass its id (.id)" in str(refused(get_handle("some-id")))
    assert "WorkRequest (a built work) at input; queue it and pass its id" in str(refused(add(a=1, b=2)))
    assert "coroutine (an awaitable) at input; await it first" in str(refused(waiting))
    waiting.close()


BAD = object()


@pytest.mark.parametrize(("value", "path"), [
    (BAD, "order"), ({"lines": [1, 2, BAD]}, "order['lines'][2]"),
    ({"lines": ((BAD,),)}, "order['lines'][0][0]"),
    ({3: {"it's": BAD}}, """order[3]["it's"]"""), ({Shade.DARK: BAD}, "order['dark']"),
    ({(1, "a"): BAD}, "order[(1, 'a')]"), ({"x": {BAD}}, "order['x']{…}"),
    ([frozenset([(1, BAD)])], "order[0]{…}[1]"), ({"x": {BAD: 1}}, "key of order['x']"),
    ({"x": {(1, BAD): 1}}, "key of order['x']"), ({"x": {(1, frozenset([BAD])): 1}}, "key of order['x']"),
    ({"k" * 100: BAD}, "order['" + "k" * 58 + "…]"), ({10**5000: BAD}, "order[<int>]"),
    ({Moody(): 1}, "key of order"),
], ids=range(14))  # fmt: skip
def test_the_path_leads_to_the_unsupported_value(value, path):
    error = refused(value, "order")
    assert isinstance(error, TypeError) and isinstance(error, AyeworkError)
    assert (error.path, error.__cause__, error.__suppress_context__) == (path, None, True)
    assert f" at {path}; " in str(error)
    with pytest.raises(NotEncodable, match=r" at value\[0\]; "):
        encode([BAD])


def test_a_long_path_is_cut_in_the_middle():
    value = BAD
    for number in range(60):
        value = {f"level-{number}": value}
    path = refused(value).path
    assert len(path) < 200
    assert path.startswith("input['level-59']")
    assert path.endswith("['level-0']")


LOOP = {"self": []}
LOOP["self"].append(LOOP)
ALIKE = "two ValueError keys that are written alike at key of input['x']; pass a list of pairs"
LISTS = "pass dict(….lists()) to keep all values, or ….dict() for the last ones"


@pytest.mark.parametrize(("value", "message"), [
    (LOOP, "data without loops, got: dict that contains itself at input['self'][0]; pass an id in its place"),
    ({"x": {ValueError("a"): 1, ValueError("a"): 2}}, f"keys that differ when stored, got: {ALIKE}"),
    (
        [MultiValueDict({"tag": ["a", "b"]})],
        f"a mapping with one value per key, got: MultiValueDict at input[0]; {LISTS}",
    ),
], ids=["loop", "keys stored alike", "form with many values"])  # fmt: skip
def test_collections_that_could_not_be_read_as_they_were_are_refused(value, message):
    assert str(refused(value)) == f"expected {message}"


def test_loops_and_equal_keys_of_other_types_are_refused():
    rich, many = [], []
    rich.append((rich,))
    assert refused(rich).path == "input[0][0]"
    many.extend([many] * 10)
    assert refused(many).path == "input[0]"
    assert "two Twin keys" in str(refused({Twin("a"): 1, Twin("a"): 2}))


WRAPS = [lambda v: [v], lambda v: (v,), lambda v: {"a": v}, lambda v: {1: v}, lambda v: frozenset([v])]


@pytest.mark.parametrize("leaf", [1, BAD, (), frozenset()], ids=["plain", "bad", "tuple", "frozenset"])
@pytest.mark.parametrize("wrap", WRAPS)
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


HASHING = [lambda v: {v}, lambda v: frozenset([(v,)]), lambda v: {v: 1}, lambda v: {(1, v): 1}]
INSTEAD = [(Members([1]), "a tuple"), (Bag([1]), "a frozenset"), (Table(a=1), "a tuple of pairs")]


@pytest.mark.parametrize("wrap", HASHING)
@pytest.mark.parametrize(("value", "instead"), INSTEAD)
def test_keys_and_members_must_be_hashable_when_they_are_read(wrap, value, instead):
    error, name = str(refused(wrap(value))), type(value).__name__
    assert f"expected a value that is still hashable when it is read back, got: {name} at " in error
    assert error.endswith(f"; pass {instead}")
    assert encode([{(1,): Members([1])}, frozenset([1]), Members([2])])


@dataclasses.dataclass(frozen=True)
class Money:
    amount: Decimal
    currency: str


def money_from_plain(plain):
    return Money(**plain)


MONEY = CustomType(tag="money", type=Money, to_plain=vars, from_plain=money_from_plain)
PATH = CustomType(tag="path", type=PurePosixPath, to_plain=str, from_plain=Path)


def test_values_of_a_custom_type_come_back_inside_others_as_keys_and_as_members():
    codec, price = RichJSON(extra=[MONEY]), Money(Decimal(1), "EUR")
    value = {"prices": (Money(Decimal("4.50"), "EUR"), [price]), "keys": [{price: 1}, {price}]}
    value["members"] = frozenset([(price,)])
    assert codec.decode(codec.encode(value)) == value
    assert codec.encode(Money(Decimal("4.50"), "EUR")) == (
        '{"$ayework":"money","value":{"amount":{"$ayework":"decimal","value":"4.50"},"currency":"EUR"}}'
    )
    with pytest.raises(NotEncodable, match=r"got: Money \(a dataclass\)"):
        RichJSON().encode(price)
    with pytest.raises(NotEncodable) as caught:
        codec.encode([Money(object(), "EUR")], "prices")
    assert caught.value.path == "prices[0]['amount']"


def test_an_unreadable_view_is_refused_with_its_cause():
    view = memoryview(b"tea")
    view.release()
    error = refused([view])
    assert "written as bytes, got: memoryview (ValueError: " in str(error)
    assert (error.path, type(error.__cause__)) == ("input[0]", ValueError)


def test_a_custom_type_may_replace_a_rich_one_but_old_text_stays_readable():
    cents = {"to_plain": lambda d: int(d * 100), "from_plain": lambda n: Decimal(n) / 100}
    codec = RichJSON([CustomType(tag="cents", type=Decimal, **cents)])
    assert codec.encode(Decimal("4.50")) == '{"$ayework":"cents","value":450}'
    assert codec.decode(encode(Decimal("4.50"))) == Decimal("4.50")


def test_a_custom_type_may_be_subscripted_and_has_the_subclasses_of_its_class():
    kind = CustomType[Fraction](tag="fraction", type=Fraction, to_plain=str, from_plain=Fraction)
    codec = RichJSON([kind, PATH])
    assert codec.decode(codec.encode(Fraction(1, 3))) == Fraction(1, 3)
    assert codec.encode(Path("/srv")) == '{"$ayework":"path","value":"/srv"}'
    assert codec.decode(codec.encode([Path("/srv")])) == [Path("/srv")]


def test_a_failing_conversion_is_a_refusal_that_keeps_the_cause():
    codec = RichJSON([dataclasses.replace(MONEY, to_plain=lambda money: 1 / 0)])
    with pytest.raises(NotEncodable) as caught:
        codec.encode({"price": Money(Decimal(1), "EUR")}, "order")
    assert str(caught.value) == (
        "expected a value that can be written as money, got: Money (ZeroDivisionError: 'division by zero') "
        "at order['price']; see the cause"
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(NotDecodable) as caught:
        codec.decode('{"$ayework":"money","value":{"amount":1}}')
    assert str(caught.value) == "expected a stored money, got: {'amount': 1}"
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_custom_value_that_contains_itself_is_refused():
    class Node:
        pass

    node = Node()
    kind = CustomType(tag="node", type=Node, to_plain=lambda n: {"next": n}, from_plain=lambda p: Node())
    with pytest.raises(NotEncodable, match=r"Node that contains itself at value\['next'\]"):
        RichJSON([kind]).encode(node)


NO_TAG = "tag to be a text that is not empty"
NOT_CALLABLE = "to_plain and from_plain of tag 'money' to be callable"
OWN_FORM = "a class without a JSON form of its own"


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"tag": ""}, TypeError, f"{NO_TAG}, got: ''"), ({"tag": 5}, TypeError, f"{NO_TAG}, got: 5"),
    ({"type": "Money"}, TypeError, "type to be a class, got: 'Money'"),
    *(({"type": kind}, ValueError, f"{OWN_FORM}, got: {kind.__name__}") for kind in (dict, str, object)),
    ({"to_plain": None}, TypeError, NOT_CALLABLE), ({"from_plain": "x"}, TypeError, NOT_CALLABLE),
])  # fmt: skip
def test_a_type_that_could_never_work_is_refused_where_it_is_described(change, error, message):
    with pytest.raises(error) as caught:
        dataclasses.replace(MONEY, **change)
    assert str(caught.value) == f"expected {message}"


@pytest.mark.parametrize("tag", ["decimal", "dict", "path"])
def test_tags_and_types_are_unique(tag):
    with pytest.raises(ValueError) as caught:
        RichJSON([PATH, dataclasses.replace(MONEY, tag=tag)])
    assert str(caught.value) == f"expected tags of CustomType that are not taken, got: '{tag}' again"
    with pytest.raises(ValueError) as caught:
        RichJSON([MONEY, dataclasses.replace(MONEY, tag="money2")])
    assert str(caught.value) == "expected one CustomType for each type, got: Money again"


def test_a_codec_never_changes_and_can_be_copied():
    kinds = [MONEY]
    codec = RichJSON(kinds)
    kinds.clear()
    assert codec.extra == (MONEY,)
    with pytest.raises(dataclasses.FrozenInstanceError):
        codec.extra = ()
    assert copy.deepcopy(codec) == pickle.loads(pickle.dumps(codec)) == codec
    assert hash(codec) == hash(RichJSON([MONEY]))
    assert codec != RichJSON()
