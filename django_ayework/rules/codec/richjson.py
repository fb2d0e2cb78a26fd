"""The codec used unless the settings or a work name another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django_ayework.rules.codec.custom import CustomType
from django_ayework.rules.codec.plain import is_plain
from django_ayework.rules.codec.reader import Reader
from django_ayework.rules.codec.refusal import Refusal
from django_ayework.rules.codec.text import has_surrogates, write, write_escaped
from django_ayework.rules.codec.walk import Walk, Writer, too_deep
from django_ayework.rules.codec.writers import all_readers, all_writers


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
