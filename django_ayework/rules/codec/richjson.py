"""RichJSON, the default codec: its writers and its reader."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from json import JSONDecodeError, JSONDecoder
from math import isfinite
from pathlib import PurePath
from types import NoneType
from typing import Any, NamedTuple, NoReturn, TypeAlias

from django_ayework.errors import NotDecodable
from django_ayework.rules.codec import containers
from django_ayework.rules.codec import containers as mappings
from django_ayework.rules.codec.containers import Refusal, Walk, Writer, require_list, too_deep
from django_ayework.rules.codec.scalars import SCALARS, message_of
from django_ayework.rules.codec.text import (
    BIG,
    TAG,
    VALUE,
    CustomType,
    UnknownTag,
    has_surrogates,
    is_plain,
    pieces,
    quoted,
    tagged,
    write,
    write_escaped,
)

# --- reader ---
# The way back: JSON text to rich values.


class Reader:
    """Reads JSON text with a fixed set of tags. Values are built from the inside out while JSON is parsed."""

    __slots__ = ("_decoder", "_readers")

    def __init__(self, readers: Mapping[str, Callable[[Any], Any]]) -> None:
        self._readers = readers
        self._decoder = JSONDecoder(object_pairs_hook=self._built, parse_constant=refuse_constant)

    def read(self, text: str) -> Any:
        """Return the value, or raise ``NotDecodable``."""
        if not isinstance(text, str):
            raise NotDecodable(f"expected JSON text, got: {type(text).__name__} {quoted(text)}")
        try:
            return self._value(text)
        except NotDecodable:
            raise
        except RecursionError:
            raise NotDecodable(f"expected JSON text nested less deeply, got: {quoted(text)}") from None
        except ValueError as error:
            raise NotDecodable(f"expected JSON text, got: {quoted(text)} ({error})") from error

    def _value(self, text: str) -> Any:
        """Read a text without blanks around it, as it was written here; others take the longer way."""
        try:
            value, end = self._decoder.raw_decode(text)
        except JSONDecodeError:
            return self._decoder.decode(text)
        return value if end == len(text) else self._decoder.decode(text)

    def _built(self, pairs: list[tuple[str, Any]]) -> Any:
        """Return what one JSON object stands for."""
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            raise NotDecodable(
                f"expected each key of an object once, got: {quoted([key for key, _ in pairs])}"
            )
        return self._untagged(mapping) if TAG in mapping else mapping

    def _untagged(self, mapping: dict[str, Any]) -> Any:
        """Return the value inside a wrapper; an unknown tag is passed through."""
        tag = mapping[TAG]
        reader = self._readers.get(tag) if isinstance(tag, str) else None
        if reader is None:
            return UnknownTag(mapping)
        if mapping.keys() != {TAG, VALUE}:
            raise NotDecodable(f"expected {TAG} {tag!r} with one value, got the keys: {quoted([*mapping])}")
        return read_value(tag, reader, mapping[VALUE])


def read_value(tag: str, reader: Callable[[Any], Any], plain: Any) -> Any:
    """Return what ``reader`` makes of a value; any failure of it means that the value is malformed."""
    try:
        return reader(plain)
    except Exception as error:
        raise NotDecodable(f"expected a stored {tag}, got: {quoted(plain)}") from error


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which are no JSON."""
    raise NotDecodable(f"expected JSON text, got: {name}, which JSON does not have")


# --- natives ---
# Text and numbers: mostly what they are, tagged where JSON would change them.

HEX = re.compile("-?0x[0-9a-f]+")
NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def write_same(walk: Walk, value: Any) -> Any:
    """None, True and False are written as they are."""
    return value


def write_text(walk: Walk, value: str) -> Any:
    """Write text as it is; where JSON would melt two surrogates into one character, in pieces."""
    parts = pieces(str.__str__(value))
    return parts[0] if len(parts) == 1 else tagged("str", parts)


def read_text(plain: Any) -> str:
    """Join the pieces of a text; raise TypeError if they are no texts."""
    return "".join(require_list(plain))


def write_lazy_text(walk: Walk, value: Any) -> Any:
    """Write a lazy string as it reads now, in the language of the caller."""
    return write_text(walk, str(value))


def write_int(walk: Walk, value: int) -> Any:
    """Write small whole numbers as they are, big ones as hexadecimal text."""
    return value if -BIG < value < BIG else tagged("int", hex(value))


def read_int(plain: Any) -> int:
    """Read a whole number; hexadecimal has no limit on digits.

    >>> read_int("-0x20000000000000")
    -9007199254740992
    """
    if not HEX.fullmatch(plain):
        raise ValueError("expected hexadecimal digits")
    return int(plain, 16)


def write_float(walk: Walk, value: float) -> Any:
    """Write finite numbers as they are, NaN and infinities as text."""
    return value if isfinite(value) else tagged("float", float.__repr__(value))


def read_float(plain: Any) -> float:
    """Read NaN or an infinity."""
    return NOT_FINITE[plain]


# --- unsupported ---
# What to say about values that have no stored form, and what to pass instead.

STORABLE = "a value that can be stored"


class Remedy(NamedTuple):
    """A kind of value people try to pass, and what they should pass."""

    fits: Callable[[Any], bool]
    kind: str
    advice: str


def is_model(value: Any) -> bool:
    """Tell whether ``value`` is, or lazily stands for, a row of a Django model."""
    return hasattr(value.__class__, "_meta") and hasattr(value.__class__, "pk")


def is_queryset(value: Any) -> bool:
    """Tell whether ``value`` looks like a queryset."""
    return hasattr(value, "model") and hasattr(value, "query")


def is_dataclass(value: Any) -> bool:
    """Tell whether ``value`` is an instance of a dataclass."""
    return dataclasses.is_dataclass(type(value))


REMEDIES = (
    Remedy(lambda v: isinstance(v, type), "a class", "pass its dotted name"),
    Remedy(is_model, "a model instance", "pass its primary key (.pk) and load it in the handler"),
    Remedy(is_queryset, "a queryset", "pass a list of primary keys and load them in the handler"),
    Remedy(lambda v: isinstance(v, Enum), "an enum member", "pass its .value"),
    Remedy(is_dataclass, "a dataclass", "pass dataclasses.asdict(…) of it, or describe it in a CustomType"),
    Remedy(lambda v: hasattr(v, "model_dump"), "a pydantic model", "pass its model_dump()"),
    Remedy(lambda v: isinstance(v, PurePath), "a path", "pass str(…) of it"),
    Remedy(lambda v: hasattr(v, "read"), "a file", "save it and pass its name"),
    Remedy(lambda v: isinstance(v, Awaitable), "an awaitable", "await it first"),
    Remedy(lambda v: isinstance(v, Iterable), "an iterable", "pass list(…) of it"),
    Remedy(callable, "a callable", "pass its dotted name"),
)

OTHERWISE = "pass plain data, or describe its class in a CustomType"


def unsupported(value: Any) -> Refusal:
    """Return the refusal of ``value``.

    >>> str(unsupported(range(3)).error("rows"))
    'expected a value that can be stored, got: range (an iterable) at rows; pass list(…) of it'
    """
    name = type(value).__name__
    for remedy in REMEDIES:
        if fits(remedy, value):
            return Refusal(expected=STORABLE, got=f"{name} ({remedy.kind})", advice=remedy.advice)
    return Refusal(expected=STORABLE, got=name, advice=OTHERWISE)


def fits(remedy: Remedy, value: Any) -> bool:
    """Ask, and take any failure of a foreign object as a no."""
    try:
        return remedy.fits(value)
    except Exception:
        return False


# --- writers ---
# Which writer and which reader serves which type.

ReaderFunction: TypeAlias = Callable[[Any], Any]


def write_other(walk: Walk, value: Any) -> Any:
    """Write a lazy string, refuse everything else."""
    if is_lazy_text(value):
        return write_lazy_text(walk, value)
    raise unsupported(value)


def is_lazy_text(value: Any) -> bool:
    """Tell whether ``value`` is one of Django's lazy strings, such as ``gettext_lazy`` returns."""
    return type(value).__name__ == "__proxy__"


NATIVE_WRITERS: Mapping[type, Writer] = {
    NoneType: write_same,
    bool: write_same,
    int: write_int,
    float: write_float,
    str: write_text,
    list: containers.write_list,
    tuple: containers.write_tuple,
    set: containers.write_set,
    frozenset: containers.write_frozenset,
    dict: mappings.write_mapping,
    Mapping: mappings.write_mapping,
    UnknownTag: mappings.write_unknown,
    object: write_other,
}

NATIVE_READERS: Mapping[str, ReaderFunction] = {
    "int": read_int,
    "float": read_float,
    "str": read_text,
    "tuple": containers.read_tuple,
    "set": containers.read_set,
    "frozenset": containers.read_frozenset,
    "dict": mappings.read_dict,
}


def writer_for(kind: CustomType[Any]) -> Writer:
    """Return a writer that follows the rules of ``kind``; what these return may be rich in turn."""

    def write(walk: Walk, value: Any) -> Any:
        plain = converted(kind, value)
        with walk.inside(value), walk.thawed():
            return tagged(kind.tag, walk.plain(plain))

    return write


def converted(kind: CustomType[Any], value: Any) -> Any:
    """Return ``value`` in the form its type gives it; any failure becomes a refusal that keeps the cause."""
    try:
        return kind.to_plain(value)
    except Refusal:
        raise
    except Exception as error:
        raise Refusal(
            expected=f"a value that can be written as {kind.tag}",
            got=f"{type(value).__name__} ({type(error).__name__}: {quoted(message_of(error))})",
            advice="see the cause",
        ) from error


def all_writers(extra: Iterable[CustomType[Any]]) -> dict[type, Writer]:
    """Return the writer of every type."""
    kinds = {kind.type: writer_for(kind) for kind in (*SCALARS, *extra)}
    return {**NATIVE_WRITERS, **kinds}


def all_readers(extra: Iterable[CustomType[Any]]) -> dict[str, ReaderFunction]:
    """Return the reader of every tag."""
    kinds = {kind.tag: kind.from_plain for kind in (*SCALARS, *extra)}
    return {**NATIVE_READERS, **kinds}


# --- richjson ---
# The codec used unless the settings or a work name another one.


@dataclass(frozen=True, slots=True)
class RichJSON:
    """JSON that brings Python's everyday types back as they were. Instances never change.

    ``extra`` describes further types; they live in this codec only, there is no global registry.

    >>> RichJSON().decode(RichJSON().encode({"ids": {1, 2}, "at": (1.5, None)}))
    {'ids': {1, 2}, 'at': (1.5, None)}
    """

    extra: Iterable[CustomType[Any]] = ()
    _writers: Mapping[type, Writer] = field(init=False, repr=False, compare=False)
    _reader: Reader = field(init=False, repr=False, compare=False)
    _tags: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare the tables; refuse types and tags that are described twice."""
        extra = tuple(self.extra)
        require_distinct(extra)
        readers = all_readers(extra)
        object.__setattr__(self, "extra", extra)
        object.__setattr__(self, "_writers", all_writers(extra))
        object.__setattr__(self, "_reader", Reader(readers))
        object.__setattr__(self, "_tags", frozenset(readers))

    def __reduce__(self) -> tuple[type[RichJSON], tuple[Any, ...]]:
        """Copy by building anew."""
        return (type(self), (self.extra,))

    def encode(self, value: Any, path: str = "value") -> str:
        """Return the text for ``value``; ``path`` is its name in the message of ``NotEncodable``."""
        try:
            return self._text(value)
        except Refusal as refusal:
            raise refusal.error(path) from refusal.__cause__
        except RecursionError:
            raise too_deep(type(value).__name__).error(path) from None

    def decode(self, text: str) -> Any:
        """Return the value ``text`` stands for, or raise ``NotDecodable``."""
        return self._reader.read(text)

    def _text(self, value: Any) -> str:
        """Take the short cut if the value is plain, else walk through it."""
        if is_plain(value):
            text = write(value)
            if text.isascii() or not has_surrogates(text):
                return text
        plain = Walk(self._writers, self._tags).plain(value)
        text = write(plain)
        return write_escaped(plain) if has_surrogates(text) else text


def require_distinct(extra: Iterable[CustomType[Any]]) -> None:
    """Refuse two descriptions of one type, and tags that are taken."""
    tags = Counter([*all_readers(()), *(kind.tag for kind in extra)])
    types = Counter(kind.type for kind in extra)
    for tag in (tag for tag, uses in tags.items() if uses > 1):
        raise ValueError(f"expected tags of CustomType that are not taken, got: {tag!r} again")
    for kind in (kind for kind, uses in types.items() if uses > 1):
        raise ValueError(f"expected one CustomType for each type, got: {kind.__name__} again")


DEFAULT = RichJSON()


def encode(value: Any, path: str = "value") -> str:
    """Encode with the default codec; see ``RichJSON.encode``."""
    return DEFAULT.encode(value, path)


def decode(text: str) -> Any:
    """Decode with the default codec; see ``RichJSON.decode``."""
    return DEFAULT.decode(text)
