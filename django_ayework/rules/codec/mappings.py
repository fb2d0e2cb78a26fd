"""Mappings: JSON objects where the keys allow it, else lists of pairs.

>>> from django_ayework.rules.codec import encode
>>> encode({"a": 1}), encode({1: "a"})
('{"a":1}', '{"$ayework":"dict","value":[[1,"a"]]}')
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from django_ayework.rules.codec.arrays import require_list
from django_ayework.rules.codec.refusal import KEY, Refusal, subscript
from django_ayework.rules.codec.tags import TAG, UnknownTag, tagged
from django_ayework.rules.codec.text import pieces, write
from django_ayework.rules.codec.walk import Walk

Items: TypeAlias = list[tuple[Any, Any]]


def write_mapping(walk: Walk, value: Mapping[Any, Any]) -> Any:
    """Write a mapping whose keys may be anything; one that has our tag for a key is escaped as pairs."""
    walk.require_thawed(value, "a tuple of pairs")
    require_one_value_per_key(value)
    items = list(value.items())
    names = object_names(items)
    with walk.inside(value):
        if names is None or TAG in names:
            return tagged("dict", pairs(walk, items))
        return json_object(walk, names, items)


def write_unknown(walk: Walk, value: UnknownTag) -> Any:
    """Write back what was passed through, as it came, unless it has become something else meanwhile."""
    items = list(value.items())
    names = object_names(items)
    if names is None or TAG not in names or is_known(walk, value[TAG]):
        return write_mapping(walk, value)
    with walk.inside(value):
        return json_object(walk, names, items)


def is_known(walk: Walk, tag: Any) -> bool:
    """Tell whether ``tag`` means something to this codec."""
    return isinstance(tag, str) and tag in walk.tags


def object_names(items: Items) -> list[str] | None:
    """Return the keys as names of a JSON object, or None if they are more than different texts."""
    if not all(issubclass(type(key), str) for key, _ in items):
        return None
    names = [str.__str__(key) for key, _ in items]
    if len(set(names)) < len(names) or any(len(pieces(name)) > 1 for name in names):
        return None
    return names


def json_object(walk: Walk, names: Iterable[str], items: Items) -> dict[str, Any]:
    """Return a JSON object with the values under ``names``."""
    return {name: under(walk, key, value) for name, (key, value) in zip(names, items, strict=True)}


def pairs(walk: Walk, items: Items) -> list[list[Any]]:
    """Return pairs of key and value, both as plain data."""
    plain = [[key_of(walk, key), under(walk, key, value)] for key, value in items]
    stored = [write(key) for key, _ in plain]
    if len(set(stored)) < len(stored):
        raise alike(next(key for (key, _), text in zip(items, stored, strict=True) if stored.count(text) > 1))
    return plain


def under(walk: Walk, key: Any, value: Any) -> Any:
    """Return the plain form of the value under ``key``."""
    try:
        return walk.plain(value)
    except Refusal as refusal:
        refusal.steps.append(subscript(key))
        raise


def key_of(walk: Walk, key: Any) -> Any:
    """Return the plain form of a key."""
    try:
        return walk.hashable(key)
    except Refusal as refusal:
        refusal.steps.append(KEY)
        raise


def alike(key: Any) -> Refusal:
    """Return the refusal of a key that would be read back as equal to another one."""
    refusal = Refusal(
        expected="keys that differ when stored",
        got=f"two {type(key).__name__} keys that are written alike",
        advice="pass a list of pairs",
    )
    refusal.steps.append(KEY)
    return refusal


def require_one_value_per_key(value: Any) -> None:
    """Refuse mappings such as ``request.POST``, which would silently lose all but the last values."""
    if hasattr(value, "getlist") and hasattr(value, "lists"):
        raise Refusal(
            expected="a mapping with one value per key",
            got=type(value).__name__,
            advice="pass dict(….lists()) to keep all values, or ….dict() for the last ones",
        )


def read_dict(plain: Any) -> dict[Any, Any]:
    """Read a mapping from pairs; raise TypeError or ValueError if they are not proper pairs."""
    mapping: dict[Any, Any] = {}
    for pair in require_list(plain):
        key, value = require_list(pair)
        if key in mapping:
            raise ValueError("expected each key once")
        mapping[key] = value
    return mapping
