"""The way back: JSON text to rich values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json import JSONDecodeError, JSONDecoder
from typing import Any, NoReturn

from django_ayework.errors import NotDecodable
from django_ayework.rules.codec.tags import TAG, VALUE, UnknownTag
from django_ayework.rules.codec.text import quoted


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
