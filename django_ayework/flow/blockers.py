"""What waiters watch when they are queued. Blockers are chains that must succeed before a work may start, and
whose results it is given; a gate watches works.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from django_ayework.define.registry import registry
from django_ayework.define.requests import GateRequest
from django_ayework.errors import ChainNotFound
from django_ayework.flow.new_works import NewWork
from django_ayework.flow.payloads import codec_of, decode_value
from django_ayework.rules.states import Status
from django_ayework.store.dependencies import Watch, watched_by_all
from django_ayework.store.groups import chain_ends, last_steps
from django_ayework.store.rows import statuses_of

Watches = dict[str, tuple[Watch, ...]]


def blocked(
    new_works: Sequence[NewWork], continuing: Collection[str] = (), promised: bool = False
) -> tuple[list[NewWork], Watches]:
    """Return the works with those that must wait as blocked, and what each work with blockers watches.

    ``continuing`` are chains whose last work has ended, and whose next is still to be born: they live.

    Raises ChainNotFound for a blocker that neither exists nor is born with them. Not for works that a gate
    has ``promised``: their blockers may have been deleted since, which count as cancelled (a recheck
    finds that), and the settlement that opens the gate must not fail for that.
    """
    wanted = {id for new_work in new_works for id in new_work.blockers}
    if not wanted:
        return list(new_works), {}
    ends = {**chain_ends(wanted), **dict.fromkeys(wanted.intersection(continuing), Status.PENDING)}
    if not promised:
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

    A chain that has ended otherwise may be retried at this moment, unseen: that is for the recheck.
    """
    succeeded = {id for id in new_work.blockers if ends.get(id) is Status.SUCCESS}
    return tuple(Watch(id, True, str(Status.SUCCESS) if id in succeeded else "") for id in new_work.blockers)


def watched_by_gates(gates: Iterable[GateRequest[Any]], private: Collection[str]) -> Watches:
    """Return what gates watch, with the outcomes of works that have succeeded, as for blockers.

    Those that are ``private`` to the transaction need not be looked up: nobody has run them yet.
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
