"""Retrying a work with an input that somebody has edited, unless the work has changed meanwhile."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from django_ayework.errors import NotRetryable
from django_ayework.flow.handles import Handle
from django_ayework.flow.retry import require_retryable, retry
from django_ayework.flow.termination import lock_work
from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import own_transaction
from django_ayework.store.rows import WorkRow


def state_token(work: Work | WorkRow) -> str:
    """Return a short text that differs once the work has another status or input, or was claimed again."""
    state = "\x00".join([work.status, str(work.delivery), work.input])
    return blake2b(state.encode(), digest_size=12).hexdigest()


@own_transaction
def retry_edited(id: str, input: Any, token: str, by: str) -> Handle[Any, Any]:
    """Retry a work with another input, or run a success again with it; return the handle.

    ``token`` is the state of the work that was edited, ``by`` the name of the user. The old input of a work
    that is retried is kept as a revision.

    Raises WorkNotFound, NotRetryable, also for a work that is no more as it was, and what ``retry`` raises.
    """
    row, _ = lock_work(id, "retried")
    require_retryable(row, again=True)
    if state_token(row) != token:
        raise NotRetryable(
            f"expected the work {id} to be as it was when its input was edited, but it has been changed "
            "since; nothing was retried.",
            id=id,
            code="changed-since-edited",
        )
    return retry(id, input, again=row.status == Status.SUCCESS, by=by)
