"""Completing without a worker: somebody else knows how a work ends."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from django_ayework.define.context import Context
from django_ayework.define.plans import Plan, plan_of, root_of
from django_ayework.define.requests import GATE_TYPE
from django_ayework.define.signal import AbortReason
from django_ayework.flow.assignments import assignment_of
from django_ayework.flow.cascade import fire
from django_ayework.flow.closing import close
from django_ayework.flow.ledger import Ledger
from django_ayework.flow.locking import lock_current_step
from django_ayework.flow.outcomes import success_from
from django_ayework.flow.services import EngineServices
from django_ayework.flow.settle import Settlement, book_all, success_of
from django_ayework.flow.twins import twinned
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.store.database import atomic
from django_ayework.store.rows import WorkRow


@contextmanager
def completing(id: str) -> Generator[Context]:
    """Lock a work that has not ended and give its context; the instruction built inside is its outcome.

    Exactly as if its handler had returned it; without an instruction nothing changes. A gate opens, whatever
    it waited for. Of a chain's id, which is that of its first work, it is the step that the chain is at.
    Everything happens in the caller's transaction, if there is one; an error undoes it.

    Raises WorkNotFound, AlreadyCompleted, and InvalidInstruction when several instructions were built that
    are not part of one another.

    Example::

        with completing(approval_id) as ctx:
            ctx.queue([send_goods(order_id=7)])
    """
    with atomic():
        row = lock_current_step(id, "completed")
        context = context_of(row)
        yield context
        root = root_of(context)
        if root is not None:
            complete_here(row, plan_of(root, context, strict=True))


@twinned
def complete(id: str, result: Any = None) -> None:
    """End a work with success and this result (None: without one), without its handler.

    Of a chain's id it is the step that the chain is at.

    Raises WorkNotFound, AlreadyCompleted, NotEncodable.
    """
    with completing(id) as context:
        if result is None:
            context.void()
        else:
            context.result(result)


def complete_here(row: WorkRow, plan: Plan) -> None:
    """Write the success of a locked work; a worker that runs it is told after the commit."""
    ledger = Ledger(clock.now())
    if row.type == GATE_TYPE:
        move = fire(row, ledger.now)
        transitions.apply([move.transition])
        move.follow_up(ledger, move)
    else:
        success = success_from(plan, row)
        unaided = row._replace(worker=None)
        transitions.apply([success_of(unaided, success, ledger.now)])
        book_all(ledger, [Settlement(unaided, success)])
    ledger.effects.revoked[row.id] = AbortReason.ALREADY_COMPLETED
    close(ledger)


def context_of(row: WorkRow) -> Context:
    """Return the context of a work that no handler runs."""
    return Context(assignment_of(row), EngineServices())
