"""The cause of a death: what differs from work to work is left out, whatever the text is."""

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.rules.causes import LONGEST, fingerprint, normalised

HOSTILE = "aB1 '\"`“”…:/@.-+,=#?\n()[]{}<>é٣xyzfacebd\x00\ud800"
names = st.from_regex(r"[A-Z][a-z]{1,8}(Error|Exception|[0-9]{3})", fullmatch=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: order 17 has 3 items", "ValueError: order 4711 has 12 items"),
        ("KeyError: 'a'", "KeyError: 'something else'"),
        ('KeyError: "it\'s"', 'KeyError: "a"'),
        ("E: <Foo object at 0x7f1c2a>", "E: <Foo object at 0xdeadbeef>"),
        (f"Gone: {uuid.UUID(int=1)}", f"Gone: {uuid.UUID(int=2**128 - 1)}"),
        ("Gone: ORD-17-b", "Gone: ORD-4-b"),
        ("Late: 2026-01-01 10:00:00+00:00", "Late: 2026-11-23T16:35:07.123456Z"),
        ("SMTPError: ann@example.com: no", "SMTPError: bob.b+x@mail.example.org: no"),
        ("HTTPError: https://a.example/v1/x/17?a=b&c=d#e", "HTTPError: https://a.example/v1/x/4711?a=b#f"),
        ("HTTPError: https://ann:secret@a.example/x", "HTTPError: https://a.example/x"),
        ("OSError: /tmp/run-17/a.csv", "OSError: /tmp/run-4/a.csv"),
        ("ValueError: [1, 2, 3]", "ValueError: [1, 2]"),
        ("ValueError: -1.5e-7 is too small", "ValueError: 3 is too small"),
        ("no luck with 17\nTraceback 1", "no luck with 4\nTraceback 2"),
        ("  \n ValueError: 1", "ValueError: 2"),
    ],
)
def test_errors_that_differ_in_values_have_one_cause(one, other):
    assert normalised(one) == normalised(other)
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: no luck", "TypeError: no luck"),
        ("ValueError: no luck", "ValueError: no stock"),
        ("Http404: gone", "Http403: gone"),
        ("Http404", "Http403"),
        ("HTTPError: https://a.example/x/1", "HTTPError: https://b.example/x/1"),
        ("ValueError", ""),
        ("deadline exceeded", "worker lost"),
    ],
)
def test_errors_that_differ_in_words_have_two(one, other):
    assert fingerprint(one) != fingerprint(other)


def test_values_do_not_show():
    shown = normalised(
        "SMTPError: 550 for ann@example.com at https://ann:secret@mx7.example.com/q?key=1 'x y'"
    )
    assert shown == "SMTPError: … for … at https://….example.com/q '…'"


@given(names, st.integers(0, 10**30), st.integers(0, 10**30), st.uuids(), st.uuids())
def test_numbers_and_ids_make_no_difference(name, one, other, first, second):
    before = f"{name}: order {one} of customer #{other}, id {first} ({one})"
    after = f"{name}: order {other} of customer #{one}, id {second} ({other})"
    assert fingerprint(before) == fingerprint(after)


@given(names, names, st.text(alphabet=HOSTILE))
def test_types_make_a_difference(one, other, message):
    assert (fingerprint(f"{one}: {message}") == fingerprint(f"{other}: {message}")) is (one == other)


@given(st.text() | st.text(alphabet=HOSTILE, max_size=500))
def test_what_is_normalised_stays_as_it_is(text):
    once = normalised(text)
    assert len(once) <= LONGEST
    assert normalised(once) == once
    assert re.fullmatch("[0-9a-f]{16}", fingerprint(text))


@given(st.text(alphabet=HOSTILE, min_size=1, max_size=4), st.text(alphabet=HOSTILE, max_size=4))
def test_long_hostile_texts_are_read_in_one_go(unit, end):
    """A pattern that goes back and forth would take minutes for these."""
    assert len(normalised(unit * 3000 + end)) <= LONGEST
