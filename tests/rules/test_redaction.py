"""What dotted paths hide, and what they leave."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.rules.codec import decode
from django_ayework.rules.texts import HIDDEN, redacted

CARD = {"number": 4111, "holder": "Ann"}


@pytest.mark.parametrize(
    ("value", "path", "shown"),
    [
        ({"pin": 17, "n": 1}, "pin", {"pin": HIDDEN, "n": 1}),
        ({"pin": None}, "pin", {"pin": HIDDEN}),  # whether there is one is nobody's business either
        ({"card": CARD}, "card", {"card": HIDDEN}),
        ({"card": CARD}, "card.number", {"card": {"number": HIDDEN, "holder": "Ann"}}),
        ({"n": 1}, "pin", {"n": 1}),
        ({"card": {"holder": "Ann"}}, "card.number", {"card": {"holder": "Ann"}}),
        ({"card": None}, "card.number", {"card": None}),
        ({"cards": [CARD, CARD]}, "cards.holder", {"cards": [{"number": 4111, "holder": HIDDEN}] * 2}),
        ({"cards": ({"a": [CARD]},)}, "cards.a.number", {"cards": [{"a": [CARD | {"number": HIDDEN}]}]}),
        ({"card.number": 4111}, "card.number", {"card.number": HIDDEN}),  # a key with dots of its own
        ({"a.b": {"c": 1, "d": 2}}, "a.b.c", {"a.b": {"c": HIDDEN, "d": 2}}),
        ({"a": {"b.c": 1}, "a.b": {"c": 1}}, "a.b.c", {"a": {"b.c": HIDDEN}, "a.b": {"c": HIDDEN}}),
        ({"card": "4111 Ann"}, "card.number", {"card": HIDDEN}),  # what cannot be looked into is hidden
        ({"card": Decimal("4111")}, "card.number", {"card": HIDDEN}),
        ({"card": {4111}}, "card.number", {"card": HIDDEN}),
        ({"cards": [CARD, "4111"]}, "cards.number", {"cards": [CARD | {"number": HIDDEN}, HIDDEN]}),
        ({1: "one", "pin": 2}, "pin", {1: "one", "pin": HIDDEN}),
        ("a text", "pin", HIDDEN),
    ],
)
def test_a_path_hides_what_it_leads_to(value, path, shown):
    assert redacted(value, [path]) == shown


def test_a_value_of_a_type_that_only_a_newer_release_knows_is_hidden():
    stored = '{"card":{"$ayework":"card-2030","value":{"number":4111}}}'

    assert redacted(decode(stored), ["card.number"]) == {"card": HIDDEN}


def test_the_value_itself_is_left_as_it_is():
    value = {"card": dict(CARD), "list": [{"pin": 1}]}
    redacted(value, ["card.number", "list.pin"])

    assert value == {"card": CARD, "list": [{"pin": 1}]}


names = st.sampled_from(["a", "b", "a.b", "c"])
values = st.recursive(
    st.just("SECRET") | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
)


@given(st.dictionaries(names, values, max_size=3), st.lists(st.sampled_from(["a", "a.b", "b.c"]), max_size=3))
def test_more_paths_never_show_more(value, paths):
    alone = [str(redacted(value, [path])).count("SECRET") for path in paths]

    assert str(redacted(value, paths)).count("SECRET") <= min([*alone, str(value).count("SECRET")])


@given(st.dictionaries(names, values, max_size=3))
def test_what_a_name_of_the_input_leads_to_is_never_shown(value):
    rest = {name: item for name, item in value.items() if name != "a"}

    assert str(redacted(value, ["a"])).count("SECRET") == str(rest).count("SECRET")
