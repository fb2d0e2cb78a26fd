"""Inputs as people may see them. Whatever shows an input, in a page, a log or a message, asks here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django_ayework.define.registry import AnyWorkType, registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import NotDecodable
from django_ayework.flow.payloads import codec_of, decode_input, redacts
from django_ayework.rules.redaction import HIDDEN, redacted
from django_ayework.store.rows import WorkRow


def input_for_people(type: str, text: str, kept: Iterable[str] | None) -> str:
    """Return a stored input as text that may be shown; the same text when there is nothing to hide.

    ``kept`` is what was to be redacted when the work was queued, so that those may show it, too, who do not
    know its type; None when it has not been queued. What cannot be looked into is hidden altogether.
    """
    if type == GATE_TYPE:
        return releases_for_people(text)
    work_type = registry.find(type)
    if work_type is None and kept is None:
        return HIDDEN
    paths = {*(kept or ()), *(work_type.settings.redact if work_type else ())}
    if not paths:
        return text
    codec = codec_of(work_type)
    try:
        return codec.encode(redacted(codec.decode(text), paths))
    except BaseException:  # a codec of the project's own may raise anything
        return HIDDEN


def quotes_for_people(text: str, *types: str) -> str:
    """Return a text that quotes parts of inputs of these types, as far as it may be shown."""
    return HIDDEN if any(map(redacts, types)) else text


def releases_for_people(text: str) -> str:
    """Return the stored works of a gate, of whatever types, as text that may be shown."""
    return HIDDEN if any(work_type.settings.redact for work_type in registry) else text


def arguments_for_people(work_type: AnyWorkType | None, arguments: Any) -> Any:
    """Return arguments that may be shown; they need not be a mapping yet."""
    paths = work_type.settings.redact if work_type else ()
    return redacted(arguments, paths) if paths else arguments


def read_input(row: WorkRow, work_type: AnyWorkType) -> Mapping[str, Any]:
    """Return a stored input by name. Raises NotDecodable, or whatever a codec of the project's own raises.

    As errors quote what they cannot read, the type's redaction hides them.
    """
    try:
        return decode_input(row.input, codec_of(work_type))
    except BaseException:
        if not work_type.settings.redact:
            raise
        raise NotDecodable(
            f"expected a stored input to be arguments by name, got: {HIDDEN} (the type redacts its input)."
        ) from None
