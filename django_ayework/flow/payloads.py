"""Inputs, results, group values, releases of gates and options, to and from stored text; secrets redacted."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from typing import Any

from django_ayework.conf import get_settings
from django_ayework.define.options import MAX_TYPE_LENGTH, checked
from django_ayework.define.requests import GATE_TYPE, GateRequest, WorkRequest, dependency
from django_ayework.define.types import AnyWorkType, registry
from django_ayework.errors import InvalidWorkId, NotDecodable, NotEncodable, PayloadTooLarge
from django_ayework.rules.codec import Codec, RichJSON
from django_ayework.rules.conditions import condition_from_plain, condition_to_plain
from django_ayework.rules.formatting import HIDDEN, redacted
from django_ayework.rules.identity import About, require_work_id
from django_ayework.rules.retry import Retry, RetryPolicy


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
    codec = codec or codec_of(registry.find(request.type))
    return encoded(request.type, "input", dict(request.input), codec)


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
    if not isinstance(arguments, dict) or not all(isinstance(name, str) for name in arguments):
        raise NotDecodable(f"expected a stored input to be arguments by name, got: {text[:80]!r}.")
    return arguments


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


# The works that a gate will release: the stored input of the gate.


def encode_releases(requests: Sequence[WorkRequest[Any, Any]], timeout: float | None) -> str:
    """Return the releases (and the gate's timeout, for a retry of the gate) as text."""
    plain = {"queue": [plain_request(request) for request in requests], "timeout": timeout}
    return sized(json.dumps(plain, separators=(",", ":")), "the works that a gate releases")


def plain_request(request: WorkRequest[Any, Any]) -> dict[str, Any]:
    """Return a request as plain data; a gate among the releases is kept whole."""
    plain: dict[str, Any] = {
        "id": request.id,
        "type": request.type,
        "options": plain_options(request.options),
    }
    if isinstance(request, GateRequest):
        plain["gate"] = {
            "watched": list(request.watched),
            "releases": [plain_request(release) for release in request.releases],
            "condition": condition_to_plain(request.condition),
            "timeout": request.timeout,
            "on_unmet": request.on_unmet,
        }
    else:
        plain["input"] = encoded_input(request)
    return plain


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as plain data: moments as ISO texts, a retry policy as a mapping."""
    plain: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, datetime):
            value = value.isoformat()
        elif isinstance(value, Retry):
            value = {key: number for key, number in asdict(value).items() if number is not None}
        plain[name] = value
    return plain


def decode_releases(text: str) -> list[WorkRequest[Any, Any]]:
    """Read the releases back. Raises NotDecodable."""
    return [read_request(plain) for plain in parsed(text)["queue"]]


def gate_timeout(text: str) -> float | None:
    """Return the gate's timeout in seconds; None for none, or when its input cannot be read."""
    try:
        timeout = parsed(text).get("timeout")
    except NotDecodable:
        return None
    return float(timeout) if isinstance(timeout, (int, float)) else None


def release_ids(requests: Iterable[WorkRequest[Any, Any]]) -> Iterator[str]:
    """Return the ids of these works, and of all that gates among them would release in turn."""
    for request in requests:
        yield request.id
        if isinstance(request, GateRequest):
            yield from release_ids(request.releases)


def stored_release_ids(text: str) -> Iterator[str]:
    """Return the ids of all works that a stored gate would release, nested gates included.

    Releases that cannot be read are passed over.
    """
    with contextlib.suppress(NotDecodable):
        yield from plain_release_ids(parsed(text)["queue"])


def plain_release_ids(releases: Any) -> Iterator[str]:
    """Return the same of works as plain data."""
    for plain in releases if isinstance(releases, list) else ():
        if isinstance(plain, dict):
            with contextlib.suppress(InvalidWorkId):
                yield require_work_id(plain.get("id"))
            if isinstance(gate := plain.get("gate"), dict):
                yield from plain_release_ids(gate.get("releases"))


def parsed(text: str) -> dict[str, Any]:
    """Return a gate's input as plain data."""
    try:
        plain = json.loads(text)
        if isinstance(plain, dict) and isinstance(plain.get("queue"), list):
            return plain
    except ValueError:
        pass
    raise NotDecodable(f"expected the stored input of a gate, got: {releases_for_people(text)[:80]!r}.")


def read_request(plain: Mapping[str, Any]) -> WorkRequest[Any, Any]:
    """Return a request from plain data."""
    try:
        options = checked(read_options(plain["options"]))
        if "gate" in plain:
            return read_gate(plain, options)
        return StoredRequest(
            type=read_text(plain["type"], MAX_TYPE_LENGTH),
            input={},
            id=require_work_id(plain["id"]),
            options=options,
            encoded=read_text(plain["input"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        shown = releases_for_people(f"{plain!r:.80} ({error})")
        raise NotDecodable(f"expected a work that a gate releases, got: {shown}.") from error


def read_gate(plain: Mapping[str, Any], options: Any) -> GateRequest[Any]:
    """Return a nested gate from plain data."""
    gate = plain["gate"]
    request: GateRequest[Any] = dependency(
        on=gate["watched"],
        queue=[read_request(release) for release in gate["releases"]],
        condition=condition_from_plain(gate["condition"]),
        timeout=gate["timeout"],
        on_unmet=gate["on_unmet"],
    )
    return replace(request, id=require_work_id(plain["id"]), options=options)


def read_text(value: object, longest: int | None = None) -> str:
    """Return a text that fits its column."""
    if not isinstance(value, str) or not value or (longest is not None and len(value) > longest):
        raise ValueError(f"expected a text, got: {value!r:.80}")
    return storable(value, "what a gate releases")


def read_options(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return options from plain data."""
    options = dict(plain)
    for name in ("run_at", "deadline"):
        if name in options:
            options[name] = datetime.fromisoformat(options[name])
    if "retry" in options:
        options["retry"] = Retry(**options["retry"])
    if "about" in options:
        label, key = options["about"]
        options["about"] = About(read_text(label, 128), read_text(key, 64))
    return options


# Options, stored with each work so that every worker applies the same, and headers

DEFAULT_QUEUE = "default"
#: Before the last member of the stored text: the headers that propagators gave a work. Inside of a JSON text
#: its quotes would be escaped, so nothing else looks like it.
HEADERS = ',"headers":'
headers_encoder = json.JSONEncoder(separators=(",", ":"))
headers_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOptions:
    """The options a worker needs. Durations are seconds."""

    retry: RetryPolicy
    timeout: float | None = None
    expires: float | None = None
    explicit_deadline: bool = False
    lease: float | None = None
    released: bool = False  # queued by a gate, so its context has dependents
    released_by: str | None = None  # that gate, where the work has another parent
    blocked: bool = False  # has blockers, whose results its context shows
    redact: tuple[str, ...] = ()  # dotted paths into the input that people are not shown


@functools.lru_cache(maxsize=1024)
def encode_options(options: StoredOptions) -> str:
    """Return the options as text, without those that say nothing."""
    plain = {name: value for name, value in asdict(options).items() if says_something(value)}
    plain["retry"] = [*plain["retry"].values()]
    return json.dumps(plain, separators=(",", ":"))


def says_something(value: object) -> bool:
    """Tell whether the value of an option has to be stored; 0 has to."""
    return value is not None and value is not False and value != ()


def decode_options(text: str) -> StoredOptions:
    """Read back what encode_options() made; any other text gives the defaults, so that no work is lost.

    Headers differ from work to work, so the text is looked up without them.
    """
    own, mark, _ = text.partition(HEADERS)
    return parsed_options(own + "}" if mark else text)


@functools.lru_cache(maxsize=1024)
def parsed_options(text: str) -> StoredOptions:
    """Return the options that a text has, which has no headers.

    Options that a newer version of this package has stored are left out, those that are known apply.
    """
    try:
        plain = json.loads(text)
        retry = RetryPolicy(**dict(zip(names_of(RetryPolicy), plain.pop("retry"), strict=False)))
        redact = tuple(map(str, plain.pop("redact", ())))
        known = {name: plain[name] for name in names_of(StoredOptions) if name in plain}
        return StoredOptions(retry=retry, redact=redact, **known)
    except (ValueError, TypeError, KeyError, AttributeError):
        return StoredOptions(retry=RetryPolicy.resolve(get_settings().retry))


def names_of(options: type[RetryPolicy | StoredOptions]) -> list[str]:
    """Return the names of the fields, in the order in which they are stored."""
    return [field.name for field in fields(options)]


def with_headers(text: str, headers: Mapping[str, str]) -> str:
    """Return stored options with these headers; they must have none yet."""
    return f"{text[:-1]}{HEADERS}{headers_encoder.encode(headers)}}}" if headers else text


def headers_of(text: str) -> dict[str, str]:
    """Return the headers among stored options; none if there are none, or they cannot be read."""
    _, mark, headers = text.partition(HEADERS)
    try:
        found = headers_decoder.raw_decode(headers)[0] if mark else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
