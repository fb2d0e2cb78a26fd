"""RichJSON, the default codec: the test for plain values, the walk through others, and the reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from json import JSONDecoder
from math import isfinite
from types import NoneType
from typing import Any, NoReturn, TypeAlias

from django_ayework.documentation import value_error
from django_ayework.errors import NotDecodable
from django_ayework.rules.codec.refusals import KEY, MEMBER, Refusal, message_of, quoted, unsupported
from django_ayework.rules.codec.text import (
    BIG,
    NOT_FINITE,
    SCALARS,
    TAG,
    VALUE,
    CustomType,
    UnknownTag,
    float_to_plain,
    has_surrogates,
    int_from_text,
    int_to_plain,
    pieces,
    tagged,
    text_to_plain,
    write,
    write_escaped,
)


@dataclass(frozen=True, slots=True)
class RichJSON:
    """JSON that brings Python's everyday types back as they were. Instances never change.

    ``extra`` describes further types; they live in this codec only, there is no global registry.

    >>> RichJSON().decode(RichJSON().encode({"ids": {1, 2}, "at": (1.5, None)}))
    {'ids': {1, 2}, 'at': (1.5, None)}
    """

    extra: Iterable[CustomType[Any]] = ()
    _writers: Mapping[type, Writer] = field(init=False, repr=False, compare=False)
    _readers: Mapping[str, FromPlain] = field(init=False, repr=False, compare=False)
    _decoder: JSONDecoder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        extra = tuple(self.extra)
        require_distinct(extra)
        kinds = (*SCALARS, *extra)
        object.__setattr__(self, "extra", extra)
        object.__setattr__(self, "_writers", {**WRITERS, **{kind.type: writer_for(kind) for kind in kinds}})
        object.__setattr__(self, "_readers", {**READERS, **{kind.tag: kind.from_plain for kind in kinds}})
        # Values are built from the inside out while JSON is parsed.
        decoder = JSONDecoder(object_pairs_hook=self._built, parse_constant=refuse_constant)
        object.__setattr__(self, "_decoder", decoder)

    def __reduce__(self) -> tuple[type[RichJSON], tuple[Any, ...]]:
        """Copy by building anew."""
        return (type(self), (self.extra,))

    def encode(self, value: Any, path: str = "value") -> str:
        """Return the text for ``value``; ``path`` is its name in the message of ``NotEncodable``."""
        try:
            if is_plain(value):  # the short cut
                text = write(value)
                if text.isascii() or not has_surrogates(text):
                    return text
            plain = Walk(self._writers, self._readers.keys()).plain(value)
        except Refusal as refusal:
            raise refusal.error(path) from refusal.__cause__
        except RecursionError:
            raise too_deep(value).error(path) from None
        text = write(plain)
        return write_escaped(plain) if has_surrogates(text) else text

    def decode(self, text: str) -> Any:
        """Return the value ``text`` stands for, or raise ``NotDecodable``."""
        if not isinstance(text, str):
            raise NotDecodable(f"expected JSON text, got: {type(text).__name__} {quoted(text)}")
        try:
            return self._decoder.decode(text)
        except NotDecodable:
            raise
        except RecursionError:
            raise NotDecodable(f"expected JSON text nested less deeply, got: {quoted(text)}") from None
        except ValueError as error:
            raise NotDecodable(f"expected JSON text, got: {quoted(text)} ({error})") from error

    def _built(self, pairs: list[tuple[str, Any]]) -> Any:
        """Return the value of one JSON object: a dict, a tagged value, or an unknown tag as it is."""
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            keys = quoted([key for key, _ in pairs])
            raise NotDecodable(f"expected each key of an object once, got: {keys}")
        if TAG not in mapping:
            return mapping
        tag = mapping[TAG]
        reader = self._readers.get(tag) if isinstance(tag, str) else None
        if reader is None:
            return UnknownTag(mapping)
        if mapping.keys() != {TAG, VALUE}:
            raise NotDecodable(f"expected {TAG} {tag!r} with one value, got the keys: {quoted([*mapping])}")
        try:
            return reader(mapping[VALUE])
        except Exception as error:
            raise NotDecodable(f"expected a stored {tag}, got: {quoted(mapping[VALUE])}") from error


def require_distinct(extra: Iterable[CustomType[Any]]) -> None:
    """Refuse two descriptions of one type, and tags that are taken."""
    taken = {*READERS, *(kind.tag for kind in SCALARS)}
    tags = Counter([*taken, *(kind.tag for kind in extra)])
    types = Counter(kind.type for kind in extra)
    for tag in (tag for tag, uses in tags.items() if uses > 1):
        raise value_error(
            "custom-type-not-usable", f"expected tags of CustomType that are not taken, got: {tag!r} again"
        )
    for kind in (kind for kind, uses in types.items() if uses > 1):
        raise value_error(
            "custom-type-not-usable", f"expected one CustomType for each type, got: {kind.__name__} again"
        )


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which are no JSON."""
    raise NotDecodable(f"expected JSON text, got: {name}, which JSON does not have")


#: Containers may be nested this deep. A fixed limit, well inside Python's own, means that every process can
#: read what another process has written, whatever the depth of its stack.
MAX_DEPTH = 100

TEXT_ONLY = frozenset({str})


def is_plain(value: Any) -> bool:
    """Tell whether ``json`` alone would bring ``value`` back unchanged.

    >>> is_plain({"a": [1, None, "x"]}), is_plain({"a": (1,)}), is_plain({1: "a"})
    (True, False, False)
    """
    return all_plain((value,), MAX_DEPTH)


def all_plain(values: Iterable[Any], levels: int) -> bool:
    """Tell whether all ``values`` are plain and nested at most ``levels`` deep."""
    for value in values:
        kind = type(value)
        if kind is str or kind is bool or value is None:
            continue
        if kind is int:
            plain = -BIG < value < BIG
        elif kind is float:
            plain = isfinite(value)
        elif kind is list:
            plain = levels > 0 and all_plain(value, levels - 1)
        else:
            plain = kind is dict and levels > 0 and has_names(value) and all_plain(value.values(), levels - 1)
        if not plain:
            return False
    return True


def has_names(value: dict[Any, Any]) -> bool:
    """Tell whether all keys of a dict are text, none of them our tag."""
    return TAG not in value and TEXT_ONLY.issuperset(map(type, value))


class Walk:
    """One walk through a value, which returns it as plain data. It finds loops and excessive depth.

    ``frozen`` is true inside mapping keys and members of sets: only values that are hashable *after* reading
    can be stored there.
    """

    __slots__ = ("_writers", "frozen", "open", "tags")

    def __init__(self, writers: Writers, tags: Collection[str]) -> None:
        self._writers = writers
        self.tags = tags
        self.open: set[int] = set()
        self.frozen = False

    def plain(self, value: Any) -> Any:
        """Return ``value`` as plain data, or raise ``Refusal``."""
        kind = type(value)
        writer = self._writers.get(kind) or self._inherited(kind)
        return writer(self, value)

    def _inherited(self, kind: type) -> Writer:
        """Return the writer of the nearest base class; ``object`` has one, so there always is one.

        The class is taken from ``type()``, not from ``__class__``, which a lazy object may fake.
        """
        bases = [base for base in kind.__mro__ if base in self._writers]
        if bases == [object] and issubclass(kind, Mapping):
            return self._writers[Mapping]
        return self._writers[bases[0]]

    def under(self, key: object, value: Any) -> Any:
        """Return the plain form of the value under a key or an index."""
        try:
            return self.plain(value)
        except Refusal as refusal:
            refusal.steps.append(f"[{quoted(key)}]")
            raise

    def hashable(self, value: Any, step: str) -> Any:
        """Return the plain form of a key or a member, which must be hashable when it is read."""
        try:
            return self.plain_as(value, frozen=True)
        except Refusal as refusal:
            refusal.steps.append(step)
            raise

    def plain_as(self, value: Any, *, frozen: bool) -> Any:
        """Return ``value`` as plain data, which must be hashable after reading or need not be."""
        before, self.frozen = self.frozen, frozen
        try:
            return self.plain(value)
        finally:
            self.frozen = before

    @contextmanager
    def inside(self, value: Any) -> Iterator[None]:
        """Enter a container; refuse one that contains itself, and one level too many."""
        if id(value) in self.open:
            raise Refusal(
                expected="data without loops",
                got=f"{type(value).__name__} that contains itself",
                advice="pass an id in its place",
            )
        if len(self.open) >= MAX_DEPTH:
            raise too_deep(value)
        self.open.add(id(value))
        try:
            yield
        finally:
            self.open.discard(id(value))

    def require_thawed(self, value: Any, instead: str) -> None:
        """Refuse a container that could not be hashed after reading, where it would have to be."""
        if self.frozen:
            raise Refusal(
                expected="a value that is still hashable when it is read back",
                got=type(value).__name__,
                advice=f"pass {instead}",
            )


Writer: TypeAlias = Callable[[Walk, Any], Any]
Writers: TypeAlias = Mapping[type, Writer]
FromPlain: TypeAlias = Callable[[Any], Any]


def too_deep(value: object) -> Refusal:
    """Return the refusal of one level too many."""
    return Refusal(
        expected=f"at most {MAX_DEPTH} levels of nesting",
        got=f"another {type(value).__name__}",
        advice="pass flatter data",
    )


def array_writer(tag: str, instead: str = "") -> Writer:
    """Return the writer of lists or tuples; ``instead`` is advice for a type that cannot be hashed."""

    def write_array(walk: Walk, value: Any) -> Any:
        if instead:
            walk.require_thawed(value, instead)
        with walk.inside(value):
            plain = [walk.under(index, item) for index, item in enumerate(value)]
        return tagged(tag, plain) if tag else plain

    return write_array


def set_writer(tag: str, instead: str = "") -> Writer:
    """Return the writer of sets. Members are sorted by their text, so that equal sets are written alike."""

    def write_set(walk: Walk, value: Any) -> Any:
        if instead:
            walk.require_thawed(value, instead)
        with walk.inside(value):
            return tagged(tag, sorted((walk.hashable(item, MEMBER) for item in value), key=write))

    return write_set


def write_mapping(walk: Walk, value: Mapping[Any, Any]) -> Any:
    """Write a mapping as a JSON object if its keys are different texts, else as a tagged list of pairs.

    A mapping that has our tag as a key is escaped as pairs, unless it was read as an unknown tag, and still
    is one.
    """
    walk.require_thawed(value, "a tuple of pairs")
    if hasattr(value, "getlist") and hasattr(value, "lists"):  # such as request.POST
        raise Refusal(
            expected="a mapping with one value per key",
            got=type(value).__name__,
            advice="pass dict(….lists()) to keep all values, or ….dict() for the last ones",
        )
    items = list(value.items())
    names = object_names(items)
    with walk.inside(value):
        if names is None or (TAG in names and not is_unknown(walk, value, items[names.index(TAG)][1])):
            return tagged("dict", pairs(walk, items))
        return {name: walk.under(key, item) for name, (key, item) in zip(names, items, strict=True)}


def is_unknown(walk: Walk, value: Mapping[Any, Any], tag: Any) -> bool:
    """Tell whether a mapping was read as an unknown tag, and has not become a known one meanwhile."""
    return isinstance(value, UnknownTag) and not (isinstance(tag, str) and tag in walk.tags)


def object_names(items: list[tuple[Any, Any]]) -> list[str] | None:
    """Return the keys as names of a JSON object, or None if they are not different texts."""
    if not all(issubclass(type(key), str) for key, _ in items):
        return None
    names = [str.__str__(key) for key, _ in items]
    if len(set(names)) < len(names) or any(len(pieces(name)) > 1 for name in names):
        return None
    return names


def pairs(walk: Walk, items: list[tuple[Any, Any]]) -> list[list[Any]]:
    """Return pairs of key and value as plain data; refuse keys that would be read back as equal."""
    plain = [[walk.hashable(key, KEY), walk.under(key, value)] for key, value in items]
    stored = [write(key) for key, _ in plain]
    if len(set(stored)) < len(stored):
        twice = next(key for (key, _), text in zip(items, stored, strict=True) if stored.count(text) > 1)
        refusal = Refusal(
            expected="keys that differ when stored",
            got=f"two {type(twice).__name__} keys that are written alike",
            advice="pass a list of pairs",
        )
        refusal.steps.append(KEY)
        raise refusal
    return plain


def write_other(walk: Walk, value: Any) -> Any:
    """Write a lazy string of Django's in the language of the caller; refuse everything else."""
    if type(value).__name__ == "__proxy__":
        return text_to_plain(str(value))
    raise unsupported(value)


def writer_for(kind: CustomType[Any]) -> Writer:
    """Return a writer that follows the rules of ``kind``; these may return rich values in turn."""

    def write_custom(walk: Walk, value: Any) -> Any:
        try:
            plain = kind.to_plain(value)
        except Refusal:
            raise
        except Exception as error:
            raise Refusal(
                expected=f"a value that can be written as {kind.tag}",
                got=f"{type(value).__name__} ({type(error).__name__}: {quoted(message_of(error))})",
                advice="see the cause",
            ) from error
        with walk.inside(value):
            return tagged(kind.tag, walk.plain_as(plain, frozen=False))

    return write_custom


def read_dict(plain: Any) -> dict[Any, Any]:
    """Read a mapping from pairs; raise TypeError or ValueError if they are not proper pairs."""
    mapping: dict[Any, Any] = {}
    for pair in require_list(plain):
        key, value = require_list(pair)
        if key in mapping:
            raise ValueError("expected each key once")
        mapping[key] = value
    return mapping


def require_list(plain: Any) -> list[Any]:
    """Return ``plain``, which must be a list."""
    if type(plain) is not list:
        raise TypeError("expected a list")
    return plain


WRITERS: Writers = {
    NoneType: lambda walk, value: value,
    bool: lambda walk, value: value,
    int: lambda walk, value: int_to_plain(value),
    float: lambda walk, value: float_to_plain(value),
    str: lambda walk, value: text_to_plain(value),
    list: array_writer("", instead="a tuple"),
    tuple: array_writer("tuple"),
    set: set_writer("set", instead="a frozenset"),
    frozenset: set_writer("frozenset"),
    dict: write_mapping,
    Mapping: write_mapping,
    object: write_other,
}

READERS: Mapping[str, FromPlain] = {
    "int": int_from_text,
    "float": lambda plain: NOT_FINITE[plain],
    "str": lambda plain: "".join(require_list(plain)),
    "tuple": lambda plain: tuple(require_list(plain)),
    "set": lambda plain: set(require_list(plain)),
    "frozenset": lambda plain: frozenset(require_list(plain)),
    "dict": read_dict,
}


DEFAULT = RichJSON()


def encode(value: Any, path: str = "value") -> str:
    """Encode with the default codec; see ``RichJSON.encode``."""
    return DEFAULT.encode(value, path)


def decode(text: str) -> Any:
    """Decode with the default codec; see ``RichJSON.decode``."""
    return DEFAULT.decode(text)
