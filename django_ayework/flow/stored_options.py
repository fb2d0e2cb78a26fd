"""The options that are stored with each work, so that every worker applies the same, and its headers."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from django_ayework.conf import get_settings
from django_ayework.rules.retry import RetryPolicy

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
    return decoded(own + "}" if mark else text)


@functools.lru_cache(maxsize=1024)
def decoded(text: str) -> StoredOptions:
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
        return dict(headers_decoder.raw_decode(headers)[0]) if mark else {}
    except (ValueError, TypeError):
        return {}
