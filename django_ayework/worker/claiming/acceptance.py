"""Acceptance: a worker may decline works that it has claimed, for others to take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django_ayework.conf import get_settings
from django_ayework.flow.events import report, resolved_hook
from django_ayework.flow.states import state_of
from django_ayework.heartbeat import project_code
from django_ayework.rules.durations import later
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.worker.attempts.delivery import Delivery


def accepted(deliveries: Sequence[Delivery], worker_id: str) -> list[Delivery]:
    """Return the claimed works that ``AYEWORK["ACCEPT"]`` takes; the others go back for a poll.

    A declined work spends no attempt. It is due a poll later, so this worker comes to the works behind it
    first. One that the hook fails on is declined, and the failure reported.
    """
    hook = get_settings().accept
    if hook is None:
        return list(deliveries)
    accept = resolved_hook(hook)
    declined = [delivery for delivery in deliveries if not is_accepted(delivery, accept)]
    if declined:
        again_at = later(clock.now(), get_settings().poll_interval)
        transitions.release(
            {delivery.row.id: delivery.row.delivery for delivery in declined}, worker_id, again_at
        )
    return [delivery for delivery in deliveries if delivery not in declined]


def is_accepted(delivery: Delivery, accept: Callable[..., object]) -> bool:
    """Ask the hook about one work."""
    try:
        with project_code():
            return bool(accept(state_of(delivery.row)))
    except BaseException as error:
        report(error, "queue", f"ACCEPT failed on work {delivery.row.id}, which goes back")
        return False
