import copy
import dataclasses
import pickle
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath

import pytest

from django_ayework.errors import NotDecodable, NotEncodable
from django_ayework.rules.codec import CustomType, RichJSON, encode


@dataclasses.dataclass(frozen=True)
class Money:
    amount: Decimal
    currency: str


def money_to_plain(money):
    return {"amount": money.amount, "currency": money.currency}


def money_from_plain(plain):
    return Money(**plain)


MONEY = CustomType(tag="money", type=Money, to_plain=money_to_plain, from_plain=money_from_plain)
PATH = CustomType(tag="path", type=PurePosixPath, to_plain=str, from_plain=Path)


def test_values_of_a_custom_type_come_back_inside_others():
    codec = RichJSON(extra=[MONEY])
    value = {"prices": (Money(Decimal("4.50"), "EUR"), [Money(Decimal(1), "USD")])}
    assert codec.decode(codec.encode(value)) == value


def test_what_to_plain_returns_may_be_rich():
    assert RichJSON([MONEY]).encode(Money(Decimal("4.50"), "EUR")) == (
        '{"$ayework":"money","value":{"amount":{"$ayework":"decimal","value":"4.50"},"currency":"EUR"}}'
    )


def test_custom_values_may_be_keys_and_members_although_their_plain_form_is_a_dict():
    codec = RichJSON([MONEY])
    price = Money(Decimal(1), "EUR")
    value = [{price: 1}, {price}, frozenset([(price,)])]
    assert codec.decode(codec.encode(value)) == value


def test_subclasses_follow_the_rules_of_their_class():
    codec = RichJSON([PATH])
    assert codec.encode(Path("/srv")) == '{"$ayework":"path","value":"/srv"}'
    assert codec.decode(codec.encode([Path("/srv")])) == [Path("/srv")]


def test_a_custom_type_may_replace_a_rich_one_but_old_text_stays_readable():
    cents = CustomType(
        tag="cents", type=Decimal, to_plain=lambda d: int(d * 100), from_plain=lambda n: Decimal(n) / 100
    )
    codec = RichJSON([cents])
    assert codec.encode(Decimal("4.50")) == '{"$ayework":"cents","value":450}'
    assert codec.decode(encode(Decimal("4.50"))) == Decimal("4.50")


def test_the_types_of_one_codec_are_unknown_to_others():
    assert RichJSON([MONEY]).encode(Money(Decimal(1), "EUR"))
    with pytest.raises(NotEncodable, match=r"got: Money \(a dataclass\)"):
        RichJSON().encode(Money(Decimal(1), "EUR"))


def test_a_failing_to_plain_is_a_refusal_that_keeps_the_cause():
    def fail(value):
        raise RuntimeError("no rate")

    codec = RichJSON([CustomType(tag="money", type=Money, to_plain=fail, from_plain=money_from_plain)])
    with pytest.raises(NotEncodable) as caught:
        codec.encode({"price": Money(Decimal(1), "EUR")}, "order")
    assert str(caught.value) == (
        "expected a value that can be written as money, got: Money (RuntimeError: 'no rate') "
        "at order['price']; see the cause"
    )
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_failing_from_plain_means_that_the_value_is_malformed():
    with pytest.raises(NotDecodable) as caught:
        RichJSON([MONEY]).decode('{"$ayework":"money","value":{"amount":1}}')
    assert str(caught.value) == "expected a stored money, got: {'amount': 1}"
    assert isinstance(caught.value.__cause__, TypeError)


def test_unsupported_parts_of_a_custom_value_are_named():
    with pytest.raises(NotEncodable) as caught:
        RichJSON([MONEY]).encode([Money(object(), "EUR")], "prices")
    assert caught.value.path == "prices[0]['amount']"


def test_a_custom_value_that_contains_itself_is_refused():
    class Node:
        pass

    node = Node()
    kind = CustomType(tag="node", type=Node, to_plain=lambda n: {"next": n}, from_plain=lambda p: Node())
    with pytest.raises(NotEncodable, match=r"Node that contains itself at value\['next'\]"):
        RichJSON([kind]).encode(node)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"tag": ""}, TypeError, "expected tag to be a text that is not empty, got: ''"),
        ({"tag": 5}, TypeError, "expected tag to be a text that is not empty, got: 5"),
        ({"type": "Money"}, TypeError, "expected type to be a class, got: 'Money'"),
        ({"type": dict}, ValueError, "expected a class without a JSON form of its own, got: dict"),
        ({"type": str}, ValueError, "expected a class without a JSON form of its own, got: str"),
        ({"type": object}, ValueError, "expected a class without a JSON form of its own, got: object"),
        ({"to_plain": None}, TypeError, "expected to_plain and from_plain of tag 'money' to be callable"),
        ({"from_plain": "x"}, TypeError, "expected to_plain and from_plain of tag 'money' to be callable"),
    ],
)
def test_a_type_that_could_never_work_is_refused_where_it_is_described(change, error, message):
    with pytest.raises(error) as caught:
        dataclasses.replace(MONEY, **change)
    assert str(caught.value) == message


@pytest.mark.parametrize("tag", ["decimal", "dict", "path"])
def test_tags_are_unique(tag):
    with pytest.raises(ValueError) as caught:
        RichJSON([PATH, dataclasses.replace(MONEY, tag=tag)])
    assert str(caught.value) == f"expected tags of CustomType that are not taken, got: '{tag}' again"


def test_types_are_unique():
    with pytest.raises(ValueError) as caught:
        RichJSON([MONEY, dataclasses.replace(MONEY, tag="money2")])
    assert str(caught.value) == "expected one CustomType for each type, got: Money again"


def test_a_custom_type_may_be_subscripted():
    kind = CustomType[Fraction](tag="fraction", type=Fraction, to_plain=str, from_plain=Fraction)
    assert RichJSON([kind]).decode(RichJSON([kind]).encode(Fraction(1, 3))) == Fraction(1, 3)


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
