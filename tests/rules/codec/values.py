"""Strategies for everything the codec can store, and a fingerprint to compare what comes back."""

from collections import Counter
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from django_ayework.rules.codec import StoredException

TAG = "$ayework"
#: The second strategy is text made of what databases and JSON like to stumble over.
texts = (
    st.text(st.characters(exclude_categories=()))
    | st.text(st.sampled_from('a"\\\x00\x1f\x7fé\u2028\ufeff\U0001f600\ud800\udbff\udc00\udfff'))
    | st.sampled_from(["", TAG, "value", "dict"])
)
hours = st.timedeltas(min_value=-timedelta(hours=23), max_value=timedelta(hours=23))
zones = st.none() | st.timezones() | hours.map(timezone)
moments = st.datetimes(timezones=zones) | st.times(timezones=zones)
folded = st.builds(lambda moment, fold: moment.replace(fold=fold), moments, st.sampled_from([0, 1]))
big = st.integers(min_value=-(10**40), max_value=10**40)
numbers = st.integers() | big | st.floats(allow_nan=False) | st.decimals(allow_nan=False)
others = st.none() | st.booleans() | st.binary(max_size=20) | st.dates() | st.timedeltas() | st.uuids()
distinct_atoms = numbers | texts | folded | others
odd_numbers = st.sampled_from([float("nan"), -0.0, Decimal("NaN"), Decimal("-sNaN123"), Decimal("1E+5")])
atoms = distinct_atoms | odd_numbers | st.builds(StoredException, texts, texts)


def nested_hashables(members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(members, max_size=3).map(tuple) | st.frozensets(members, max_size=3)


hashables = st.recursive(distinct_atoms, nested_hashables, max_leaves=5)


def nested_values(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(values, max_size=4)
    dictionaries = st.dictionaries(texts, values, max_size=4) | st.dictionaries(hashables, values, max_size=4)
    sets = st.sets(hashables, max_size=4)
    return lists | lists.map(tuple) | dictionaries | sets | sets.map(frozenset)


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
        case datetime() | time():
            zone = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else type(value.tzinfo)
            return value.replace(tzinfo=None, fold=0), value.fold, value.utcoffset(), zone
        case list() | tuple():
            return tuple(map(fingerprint, value))
        case set() | frozenset():
            return frozenset(Counter(map(fingerprint, value)).items())
        case dict():
            return tuple((fingerprint(key), fingerprint(item)) for key, item in value.items())
        case _:
            return value
