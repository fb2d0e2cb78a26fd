"""Strategies for everything the codec can store, and a fingerprint to compare what comes back."""

from collections import Counter
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from django_ayework.rules.codec import StoredException

TAG = "$ayework"
any_text = st.text(st.characters(exclude_categories=()))
#: Text made of what databases and JSON like to stumble over.
nasty_text = st.text(st.sampled_from('a"\\\x00\x1f\x7fé\u2028\ufeff\U0001f600\ud800\udbff\udc00\udfff'))
texts = any_text | nasty_text | st.sampled_from(["", TAG, "value", "dict"])
offsets = st.timedeltas(min_value=-timedelta(hours=23), max_value=timedelta(hours=23)).map(timezone)
zones = st.none() | st.timezones() | offsets
datetimes = st.datetimes(timezones=zones)
folded = st.builds(lambda moment, fold: moment.replace(fold=fold), datetimes, st.sampled_from([0, 1]))
times = st.builds(
    lambda moment, fold: moment.replace(fold=fold), st.times(timezones=zones), st.sampled_from([0, 1])
)
distinct_atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(10**40), max_value=10**40),
    st.floats(allow_nan=False),
    texts,
    st.binary(max_size=20),
    folded,
    st.dates(),
    times,
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
)
atoms = st.one_of(
    distinct_atoms,
    st.sampled_from([float("nan"), -0.0, Decimal("NaN"), Decimal("-sNaN123"), Decimal("1E+5")]),
    st.builds(StoredException, texts, texts),
)


def nested_hashables(members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(members, max_size=3).map(tuple) | st.frozensets(members, max_size=3)


hashables = st.recursive(distinct_atoms, nested_hashables, max_leaves=5)


def nested_values(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(values, max_size=4),
        st.lists(values, max_size=4).map(tuple),
        st.dictionaries(texts, values, max_size=4),
        st.dictionaries(hashables, values, max_size=4),
        st.sets(hashables, max_size=4),
        st.frozensets(hashables, max_size=4),
    )


values = st.recursive(atoms, nested_values, max_leaves=20)


def fingerprint(value: Any) -> Any:
    """Two values have one fingerprint when nobody could tell them apart: types, signs, zones and order."""
    return type(value), details(value)


def details(value: Any) -> Any:
    match value:
        case float():
            return repr(value)
        case Decimal():
            return value.as_tuple()
        case datetime():
            return value.replace(tzinfo=None, fold=0), value.fold, value.utcoffset(), zone(value)
        case time():
            return value.replace(tzinfo=None, fold=0), value.fold, value.utcoffset(), zone(value)
        case list() | tuple():
            return tuple(map(fingerprint, value))
        case set() | frozenset():
            return frozenset(Counter(map(fingerprint, value)).items())
        case dict():
            return tuple((fingerprint(key), fingerprint(item)) for key, item in value.items())
        case _:
            return value


def zone(value: datetime | time) -> Any:
    return value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else type(value.tzinfo)
