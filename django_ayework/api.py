"""The functions users call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, Unpack, overload

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.dispatch import Signal

from django_ayework.define.handles import Handle, WorkState
from django_ayework.define.options import EnqueueOptions
from django_ayework.define.requests import WorkRequest
from django_ayework.flow import delete as deleting
from django_ayework.flow import enqueue as queueing
from django_ayework.flow import retry as retrying
from django_ayework.flow import trigger as triggering
from django_ayework.flow.cancel import cancel
from django_ayework.flow.complete import complete, completing
from django_ayework.flow.controls import limit, pause, resume
from django_ayework.flow.explain.explaining import explain
from django_ayework.flow.handles import get_handle
from django_ayework.flow.requests import refuse_arguments, request_of
from django_ayework.flow.twins import called_from_async_code, twinned
from django_ayework.rules.explaining.explanation import Explanation

R = TypeVar("R")
G = TypeVar("G")


@overload
def enqueue(work: WorkRequest[R, G], /, **options: Unpack[EnqueueOptions]) -> Handle[R, G]: ...
@overload
def enqueue(work: str, input: Any = None, /, **options: Unpack[EnqueueOptions]) -> Handle[Any, Any]: ...
def enqueue(work: WorkRequest[Any, Any] | str, input: Any = None, /, **options: Any) -> Handle[Any, Any]:
    """Queue a work in the current transaction: it commits and rolls back with it; return its handle.

    ``work`` is a built request, or a type name followed by its input: by name, or for a batch type the one
    input itself. ``on_commit=True`` defers the insert to ``transaction.on_commit``. Queueing one request
    twice gives the first one's handle, with ``deduplicated`` True; so does ``dedup=Dedup(key)`` when a work
    of this type and key is there.

    Raises UnknownWorkType, TypeError for arguments or options that do not fit, NotEncodable, PayloadTooLarge,
    InvalidWorkId.

    Example::

        with transaction.atomic():
            order = Order.objects.create(...)
            enqueue(send_receipt(order_id=order.pk), delay=60, about=order)
    """
    try:
        return queued(work, input, options)
    except SynchronousOnlyOperation as refusal:
        raise called_from_async_code("enqueue") from refusal


def queued(work: WorkRequest[Any, Any] | str, input: Any, options: Mapping[str, Any]) -> Handle[Any, Any]:
    """Queue a built request, or a type name with its input."""
    if isinstance(work, str):
        refuse_arguments(work, options)
    return queueing.enqueue_one(request_of(work, input), options)


@twinned
def enqueue_many(
    works: Iterable[WorkRequest[R, G]], /, *, together: bool = False, **options: Unpack[EnqueueOptions]
) -> list[Handle[R, G]]:
    """Queue many works, all or none; return their handles in order. Options apply to each.

    Each is a group of its own, or with ``together=True`` all are one group.
    """
    return [*queueing.enqueue_all(list(works), options, together)]


@overload
async def aenqueue(work: WorkRequest[R, G], /, **options: Unpack[EnqueueOptions]) -> Handle[R, G]: ...
@overload
async def aenqueue(
    work: str, input: Any = None, /, **options: Unpack[EnqueueOptions]
) -> Handle[Any, Any]: ...
async def aenqueue(
    work: WorkRequest[Any, Any] | str, input: Any = None, /, **options: Any
) -> Handle[Any, Any]:
    """See enqueue()."""
    return await sync_to_async(queued)(work, input, options)


async def aenqueue_many(
    works: Iterable[WorkRequest[R, G]], /, *, together: bool = False, **options: Unpack[EnqueueOptions]
) -> list[Handle[R, G]]:
    """See enqueue_many()."""
    return [*await sync_to_async(queueing.enqueue_all)(list(works), options, together)]


def enqueue_on(
    signal: Signal,
    sender: Any = None,
    *,
    make_work: Callable[..., WorkRequest[Any, Any] | None],
    dispatch_uid: str | None = None,
) -> Callable[[], None]:
    """Queue ``make_work(**signal keywords)`` whenever the signal is sent, in the same transaction.

    ``make_work`` returns a request, or None for nothing. Returns a function that disconnects.
    """

    def receiver(**keywords: Any) -> None:
        keywords.pop("signal", None)
        request = make_work(**keywords)
        if request is not None:
            enqueue(request)

    signal.connect(receiver, sender=sender, weak=False, dispatch_uid=dispatch_uid)

    def disconnect() -> None:
        signal.disconnect(receiver, sender=sender, dispatch_uid=dispatch_uid)

    return disconnect


@twinned
def retry(id: str, input: Any = None) -> Handle[Any, Any]:
    """Make a dead or cancelled work pending again, with a full budget of attempts; return its handle.

    ``expires`` counts anew, an explicit ``deadline`` stays; the group re-opens; waiters that died because of
    this work wait again.

    Raises WorkNotFound; NotRetryable for a work that is not dead or cancelled, and for a gate that still
    cannot open, naming the works to retry first.
    """
    return retrying.retry(id, input)


async def aretry(id: str, input: Any = None) -> Handle[Any, Any]:
    """See retry()."""
    return await sync_to_async(retry)(id, input)


@twinned
def trigger(*ids: str) -> list[WorkState]:
    """Make scheduled works due now, all or none; return their states in the order given, each once.

    Raises WorkNotFound, and NotTriggerable for a work that is not scheduled.
    """
    return triggering.trigger(ids)


@twinned
def delete_chains(*ids: deleting.Chain, cascade: bool = False) -> list[str]:
    """Delete chains with all their works; return the ids of those that existed, in the order given.

    ``ids`` are chain ids, which are those of first works; a handle stands for the chain its work belongs to.
    With ``cascade=True`` the chains that block any of their works go too, recursively, and come last in the
    list. A handler that is running is told ``not_found``, and what it returns is refused. Whatever watches a
    work that had not ended is decided as if that were cancelled.

    Raises BlockerReference, and deletes nothing, when one of them blocks, or had blocked, a work that stays.

    Example::

        with transaction.atomic():
            delete_chains(export.chain_id, cascade=True)
            export.delete()
    """
    return deleting.delete_chains(ids, cascade)


async def adelete_chains(*ids: deleting.Chain, cascade: bool = False) -> list[str]:
    """See delete_chains()."""
    return await sync_to_async(delete_chains)(*ids, cascade=cascade)


async def aexplain(id: str) -> Explanation:
    """See explain()."""
    return await sync_to_async(explain)(id)


async def acancel(id: str) -> Handle[Any, Any]:
    """See cancel()."""
    return await sync_to_async(cancel)(id)


async def acomplete(id: str, result: Any = None) -> None:
    """See complete()."""
    await sync_to_async(complete)(id, result)


async def atrigger(*ids: str) -> list[WorkState]:
    """See trigger()."""
    return await sync_to_async(trigger)(*ids)


async def apause(*, type: str | None = None, queue: str | None = None) -> None:
    """See pause()."""
    await sync_to_async(pause)(type=type, queue=queue)


async def aresume(*, type: str | None = None, queue: str | None = None) -> None:
    """See resume()."""
    await sync_to_async(resume)(type=type, queue=queue)


async def alimit(
    type: str, *, max_running: int | None = None, weight: int | None = None, priority: int | None = None
) -> None:
    """See limit()."""
    await sync_to_async(limit)(type, max_running=max_running, weight=weight, priority=priority)


__all__ = [
    "acancel",
    "acomplete",
    "adelete_chains",
    "aenqueue",
    "aenqueue_many",
    "aexplain",
    "alimit",
    "apause",
    "aresume",
    "aretry",
    "atrigger",
    "cancel",
    "complete",
    "completing",
    "delete_chains",
    "enqueue",
    "enqueue_many",
    "enqueue_on",
    "explain",
    "get_handle",
    "limit",
    "pause",
    "resume",
    "retry",
    "trigger",
]
