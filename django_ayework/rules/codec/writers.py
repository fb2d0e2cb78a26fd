"""Which writer and which reader serves which type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import Any, TypeAlias

from django_ayework.rules.codec import arrays, mappings, natives
from django_ayework.rules.codec.custom import CustomType
from django_ayework.rules.codec.refusal import Refusal
from django_ayework.rules.codec.scalars import SCALARS
from django_ayework.rules.codec.stored import message_of
from django_ayework.rules.codec.tags import UnknownTag, tagged
from django_ayework.rules.codec.text import quoted
from django_ayework.rules.codec.unsupported import unsupported
from django_ayework.rules.codec.walk import Walk, Writer

Reader: TypeAlias = Callable[[Any], Any]


def write_other(walk: Walk, value: Any) -> Any:
    """Write a lazy string, refuse everything else."""
    if is_lazy_text(value):
        return natives.write_lazy_text(walk, value)
    raise unsupported(value)


def is_lazy_text(value: Any) -> bool:
    """Tell whether ``value`` is one of Django's lazy strings, such as ``gettext_lazy`` returns."""
    return type(value).__name__ == "__proxy__"


NATIVE_WRITERS: Mapping[type, Writer] = {
    NoneType: natives.write_same,
    bool: natives.write_same,
    int: natives.write_int,
    float: natives.write_float,
    str: natives.write_text,
    list: arrays.write_list,
    tuple: arrays.write_tuple,
    set: arrays.write_set,
    frozenset: arrays.write_frozenset,
    dict: mappings.write_mapping,
    Mapping: mappings.write_mapping,
    UnknownTag: mappings.write_unknown,
    object: write_other,
}

NATIVE_READERS: Mapping[str, Reader] = {
    "int": natives.read_int,
    "float": natives.read_float,
    "str": natives.read_text,
    "tuple": arrays.read_tuple,
    "set": arrays.read_set,
    "frozenset": arrays.read_frozenset,
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


def all_readers(extra: Iterable[CustomType[Any]]) -> dict[str, Reader]:
    """Return the reader of every tag."""
    kinds = {kind.tag: kind.from_plain for kind in (*SCALARS, *extra)}
    return {**NATIVE_READERS, **kinds}
