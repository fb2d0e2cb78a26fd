"""Deleting: chains go, with everything that is theirs, unless somebody may still need their results."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from django_ayework.define.context import AbortReason
from django_ayework.define.handles import Handle
from django_ayework.define.requests import WorkRequest
from django_ayework.errors import BlockerReference
from django_ayework.flow.acting import gates_among, lock_all
from django_ayework.flow.dependencies import flush, unreleased_ids
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.rules.identity import require_work_id
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.clock import clock
from django_ayework.store.database import in_own_transaction
from django_ayework.store.deletion import Step, blocking, erase, references_to, steps_among
from django_ayework.store.groups import chains_of

logger = logging.getLogger("django_ayework")

Chain = str | Handle[object, object] | WorkRequest[object, object]
#: References that the message names; all are in the error's ``references``.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Selected:
    """Chains to delete, those asked for first, with the works of theirs that are locked, by id."""

    chains: list[str]
    steps: dict[str, Step]


def delete_chains(chains: Iterable[Chain], cascade: bool = False) -> list[str]:
    """Delete chains with all their works; return the ids of those that existed, in the order given.

    ``cascade`` adds the chains that block any of their works, and what blocks those, each once. Whatever
    watches a work that had not ended is decided as if that were cancelled.

    Raises BlockerReference, and deletes nothing, when a work outside of them is blocked by one of them, or
    had been.
    """
    return in_own_transaction(partial(delete_here, chain_ids_of(list(chains)), cascade))


def chain_ids_of(chains: Sequence[Chain]) -> list[str]:
    """Return the ids of chains, each once; a handle stands for the chain its work belongs to."""
    found = chains_of(item.id for item in chains if isinstance(item, Handle))
    ids = (require_work_id(getattr(item, "id", item)) for item in chains)
    return list(dict.fromkeys(found.get(id, id) for id in ids))


def delete_here(chain_ids: Sequence[str], cascade: bool) -> list[str]:
    """Delete within the transaction at hand.

    The rows go before waiters are decided: one that goes too must not be, and what a gate queues now must
    find these chains gone.
    """
    selected = hold(chain_ids, cascade)
    require_unreferenced(selected)
    unit_of_work = UnitOfWork(clock.now())
    unit_of_work.outcomes.update(dict.fromkeys(unfinished(selected.steps.values()), Status.CANCELLED))
    erase(list(selected.steps))
    for step in selected.steps.values():
        book(unit_of_work, step)
    if selected.chains:
        unit_of_work.effects.after.append(partial(log, selected.chains))
    flush(unit_of_work)
    return selected.chains


def hold(chain_ids: Sequence[str], cascade: bool) -> Selected:
    """Lock every work of these chains; with ``cascade``, of what blocks them, too.

    Until a chain's last work is locked it may hand over to another, with blockers of its own. So look again
    after each lock, until there is nothing new.
    """
    held: dict[str, Step] = {}
    tried: set[str] = set()
    chains, steps = family(chain_ids, cascade)
    while fresh := [step for step in steps if step.id not in tried]:
        tried.update(step.id for step in fresh)
        held.update((step.id, step) for step in lock_all(fresh))
        chains, steps = family(chain_ids, cascade)
    selected = {step.id: held[step.id] for step in steps if step.id in held}
    existing = {step.chain for step in selected.values()}
    return Selected([id for id in chains if id in existing], selected)


def family(chain_ids: Sequence[str], cascade: bool) -> tuple[list[str], list[Step]]:
    """Read the works of these chains, and with ``cascade`` those of the chains that block them, in turn."""
    chains, frontier = dict.fromkeys(chain_ids), list(chain_ids)
    steps: list[Step] = []
    while frontier:
        found = steps_among(frontier)
        steps += found
        blockers = blocking([step.id for step in found]) if cascade else []
        frontier = [id for id in blockers if id not in chains]
        chains.update(dict.fromkeys(frontier))
    return list(chains), steps


def require_unreferenced(selected: Selected) -> None:
    """Raise when works that stay are, or had been, blocked by a chain that is to go."""
    references = references_to(selected.chains, selected.steps)
    if not references:
        return
    named = ", ".join(f"{chain} blocks the work {work}" for chain, work in references[:NAMED])
    more = f" and {len(references) - NAMED} more" if len(references) > NAMED else ""
    raise BlockerReference(
        f"expected chains that block no other work, but {named}{more}; nothing was deleted. "
        "Name the chains of those works in the same call, or delete them first.",
        references=references,
    )


def unfinished(steps: Iterable[Step]) -> list[str]:
    """Return the ids of works that now never end: those that have not, and those that gates would queue."""
    live = [step for step in steps if not is_terminal(step.status)]
    return [*(step.id for step in live), *unreleased_ids(*gates_among(live))]


def book(unit_of_work: UnitOfWork, step: Step) -> None:
    """Note what follows from a work's row being gone; a worker that runs it is told after the commit."""
    if step.group_id is not None:
        unit_of_work.groups.member_deleted(step.group_id, step.status)
    if step.status == Status.RUNNING:
        unit_of_work.effects.revoked[step.id] = AbortReason.NOT_FOUND


def log(chains: Sequence[str]) -> None:
    """Write down what was deleted."""
    logger.info("Deleted %d chains: %s", len(chains), ", ".join(chains[:10]))
