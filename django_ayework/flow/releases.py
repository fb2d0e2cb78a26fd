"""The works that a gate will release, as stored in its input, and what new waiters watch.

A waiter is a gate, which watches works, or a work with blockers: chains that must succeed before it may
start, and whose results it is given.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django_ayework.define.options import checked
from django_ayework.define.requests import GateRequest, WorkRequest, dependency
from django_ayework.define.types import registry
from django_ayework.errors import ChainNotFound, InvalidWorkId, NotDecodable
from django_ayework.flow.payloads import (
    StoredRequest,
    codec_of,
    decode_value,
    encoded_input,
    releases_for_people,
    sized,
    storable,
)
from django_ayework.rules.conditions import condition_from_plain, condition_to_plain
from django_ayework.rules.identity import require_work_id
from django_ayework.rules.retry import Retry
from django_ayework.rules.states import Status
from django_ayework.store.dependencies import Watch, watched_by_all
from django_ayework.store.groups import chain_ends, last_steps
from django_ayework.store.rows import statuses_of

if TYPE_CHECKING:
    from django_ayework.flow.new_works import NewWork

MAX_TYPE_LENGTH = 128

Watches = dict[str, tuple[Watch, ...]]


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
        options["about"] = (read_text(label, 128), read_text(key, 64))
    return options


# Works that waiters watch


def blocked(
    new_works: Sequence[NewWork], continuing: Collection[str] = (), released: bool = False
) -> tuple[list[NewWork], Watches]:
    """Return the works with those that must wait as blocked, and what each work with blockers watches.

    ``continuing`` are chains whose last work has ended, and whose next is not inserted yet: they have not
    ended.

    Raises ChainNotFound for a blocker that neither exists nor is inserted with them. Not for works that a
    gate has ``released``: their blockers may have been deleted since, which count as cancelled (a recheck
    finds that), and the settlement that opens the gate must not fail for that.
    """
    wanted = {id for new_work in new_works for id in new_work.blockers}
    if not wanted:
        return list(new_works), {}
    ends = {**chain_ends(wanted), **dict.fromkeys(wanted.intersection(continuing), Status.PENDING)}
    if not released:
        require_chains(new_works, {new_work.row.id for new_work in new_works}.union(ends))
    watches = {new_work.row.id: watched(new_work, ends) for new_work in new_works if new_work.blockers}
    return [waiting(new_work, watches.get(new_work.row.id, ())) for new_work in new_works], watches


def require_chains(new_works: Sequence[NewWork], known: set[str]) -> None:
    """Raise unless every blocker is known."""
    for new_work in new_works:
        for id in new_work.blockers:
            if id not in known:
                raise ChainNotFound(
                    f"expected the blockers of {new_work.row.type!r} to be chains that exist, got: {id!r}; "
                    "queue it first, or use a gate, which may watch ids that do not exist yet.",
                    id=id,
                )


def watched(new_work: NewWork, ends: dict[str, Status]) -> tuple[Watch, ...]:
    """Return what a work watches, with the outcomes of chains that have succeeded.

    A chain that has ended otherwise may be retried in another transaction right now: the recheck decides.
    """
    succeeded = {id for id in new_work.blockers if ends.get(id) is Status.SUCCESS}
    return tuple(Watch(id, True, str(Status.SUCCESS) if id in succeeded else "") for id in new_work.blockers)


def watched_by_gates(gates: Iterable[GateRequest[Any]], private: Collection[str]) -> Watches:
    """Return what gates watch, with the outcomes of works that have succeeded, as for blockers.

    Works that are ``private`` to the transaction need no query: they cannot have run yet.
    """
    watched = {gate.id: gate.watched for gate in gates}
    statuses = statuses_of({id for ids in watched.values() for id in ids if id not in private})
    succeeded = {id for id, status in statuses.items() if status is Status.SUCCESS}
    return {
        gate: tuple(Watch(id, outcome=str(Status.SUCCESS) if id in succeeded else "") for id in ids)
        for gate, ids in watched.items()
    }


def waiting(new_work: NewWork, watches: Iterable[Watch]) -> NewWork:
    """Return the work as blocked, unless all it watches has succeeded."""
    if all(watch.outcome == Status.SUCCESS for watch in watches):
        return new_work
    return new_work._replace(row=new_work.row._replace(status=Status.BLOCKED))


def blockers_of(waiters: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """Return the results of each work's blockers, in the order they were given."""
    watching = watched_by_all(waiters)
    steps = last_steps({id for ids in watching.values() for id in ids})
    results = {id: decode_value(row.result, codec_of(registry.find(row.type))) for id, row in steps.items()}
    return {waiter: tuple(results.get(id) for id in ids) for waiter, ids in watching.items()}
