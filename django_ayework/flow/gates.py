"""The works a gate will release, as stored in its input."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from django_ayework.define.options import checked
from django_ayework.define.registry import registry
from django_ayework.define.requests import GateRequest, WorkRequest, dependency
from django_ayework.errors import InvalidWorkId, NotDecodable
from django_ayework.flow.payloads import codec_of, encode_input, releases_for_people, sized, storable
from django_ayework.rules.conditions import condition_from_plain, condition_to_plain
from django_ayework.rules.identity import require_work_id
from django_ayework.rules.retry import Retry

MAX_TYPE_LENGTH = 128


@dataclass(frozen=True, eq=False, repr=False)
class StoredRequest(WorkRequest[Any, Any]):
    """A request read back from a gate: its input is encoded already."""

    encoded: str = ""


def encoded_input(request: WorkRequest[Any, Any]) -> str:
    """Return a request's input as text. Raises NotEncodable or PayloadTooLarge."""
    if isinstance(request, StoredRequest):
        return request.encoded
    return encode_input(request.type, request.input, codec_of(registry.find(request.type)))


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


def promised_ids(requests: Iterable[WorkRequest[Any, Any]]) -> Iterator[str]:
    """Return the ids of these works, and of all that gates among them would release in turn."""
    for request in requests:
        yield request.id
        if isinstance(request, GateRequest):
            yield from promised_ids(request.releases)


def promised_in(text: str) -> Iterator[str]:
    """Return the same of a gate as stored, passing over what cannot be read."""
    try:
        yield from promised_in_plain(parsed(text)["queue"])
    except NotDecodable:
        return


def promised_in_plain(releases: Any) -> Iterator[str]:
    """Return the ids of works as plain data."""
    for plain in releases if isinstance(releases, list) else ():
        if isinstance(plain, dict):
            with contextlib.suppress(InvalidWorkId):
                yield require_work_id(plain.get("id"))
            if isinstance(gate := plain.get("gate"), dict):
                yield from promised_in_plain(gate.get("releases"))


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
        options["about"] = (read_text(label, 128), read_text(key, 64))
    return options
