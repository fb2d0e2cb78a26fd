"""Inputs, results and group values, to and from stored text, with secrets redacted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django_ayework.conf import get_settings
from django_ayework.define.requests import GATE_TYPE, WorkRequest
from django_ayework.define.types import AnyWorkType, registry
from django_ayework.errors import NotDecodable, NotEncodable, PayloadTooLarge
from django_ayework.rules.codec import Codec, RichJSON
from django_ayework.rules.formatting import HIDDEN, redacted

TEXTS = frozenset({str})


def codec_of(work_type: AnyWorkType | None) -> Codec:
    """Return the type's own codec, or the one of the settings."""
    own = work_type.settings.codec if work_type is not None else None
    return own or get_settings().codec


@dataclass(frozen=True, eq=False, repr=False)
class StoredRequest(WorkRequest[Any, Any]):
    """A request read back from a gate: its input is encoded already."""

    encoded: str = ""


def encoded_input(request: WorkRequest[Any, Any], codec: Codec | None = None) -> str:
    """Return a request's input as text, by the codec of its type. Raises NotEncodable or PayloadTooLarge."""
    if isinstance(request, StoredRequest):
        return request.encoded
    return encode_input(request.type, request.input, codec or codec_of(registry.find(request.type)))


def encode_input(type: str, arguments: Mapping[str, Any], codec: Codec) -> str:
    """Encode a call's arguments. Raises NotEncodable naming the argument, or PayloadTooLarge."""
    return encoded(type, "input", dict(arguments), codec)


def encode_result(type: str, value: Any, codec: Codec) -> str:
    """Encode a result. Raises NotEncodable or PayloadTooLarge."""
    return encoded(type, "result", value, codec)


def encoded(type: str, part: str, value: Any, codec: Codec) -> str:
    """Encode a part of a work. Errors name the part and the type."""
    try:
        text = codec.encode(value, part) if isinstance(codec, RichJSON) else codec.encode(value)
    except NotEncodable as error:
        why = f"{HIDDEN} at {error.path or part}" if part == "input" and redacts(type) else error
        raise NotEncodable(f"the {part} of {type!r} cannot be stored: {why}", path=error.path) from None
    return sized(text, f"the {part} of", type)


def redacts(type: str) -> bool:
    """Tell whether a type hides parts of its input, which messages may then not quote."""
    work_type = registry.find(type)
    return work_type is not None and bool(work_type.settings.redact)


def sized(text: str, what: str, type: str = "") -> str:
    """Return the text unless it is too large; the message of the error has ``what`` and the type."""
    limit = get_settings().max_payload
    if len(text) > limit:
        raise PayloadTooLarge(
            f"expected {named(what, type)} to have at most {limit} characters once encoded "
            f"(AYEWORK['MAX_PAYLOAD']), got: {len(text)}; store it elsewhere and pass a reference."
        )
    return text if text.isascii() and "\x00" not in text else storable(text, what, type)


def storable(text: str, what: str, type: str = "") -> str:
    """Return the text if every database can hold it; a codec of one's own may make others."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise NotEncodable(f"expected {named(what, type)} to be text once encoded, got: {error}.") from None
    if "\x00" in text:
        raise NotEncodable(f"expected {named(what, type)} to have no NUL character once encoded.")
    return text


def named(what: str, type: str) -> str:
    """Return what a text is, and whose."""
    return f"{what} {type!r}" if type else what


def decode_input(text: str, codec: Codec) -> dict[str, Any]:
    """Decode a stored input. Raises NotDecodable when it is not arguments by name."""
    arguments = codec.decode(text)
    if not isinstance(arguments, dict) or not are_names(arguments):
        raise NotDecodable(f"expected a stored input to be arguments by name, got: {text[:80]!r}.")
    return arguments


def are_names(keys: Collection[object]) -> bool:
    """Tell whether all of these are text, or what a codec of one's own makes of it."""
    return TEXTS.issuperset(map(type, keys)) or all(isinstance(key, str) for key in keys)


def decode_value(text: str | None, codec: Codec) -> Any:
    """Decode a result or a group's value; None for none."""
    return None if text is None else codec.decode(text)


# Inputs as people may see them: every page, log record and message that shows an input asks here.


def input_for_people(type: str, text: str, kept: Iterable[str] | None) -> str:
    """Return a stored input as text that may be shown; the same text when there is nothing to hide.

    ``kept`` are the paths to redact as they were when the work was queued, so that a process without the type
    can redact, too; None for a work that is not queued yet. An input that cannot be decoded is hidden whole.
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


def read_input(text: str, work_type: AnyWorkType) -> Mapping[str, Any]:
    """Return a stored input by name. Raises NotDecodable, or whatever a codec of the project's own raises.

    Errors quote unreadable values, so the type's redaction hides them.
    """
    try:
        return decode_input(text, codec_of(work_type))
    except BaseException:
        if not work_type.settings.redact:
            raise
        raise NotDecodable(
            f"expected a stored input to be arguments by name, got: {HIDDEN} (the type redacts its input)."
        ) from None
