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
from django_ayework.flow import acting, handles
from django_ayework.flow import acting as triggering
from django_ayework.flow import delete as deleting
from django_ayework.flow import enqueue as queueing
from django_ayework.flow import retry as retrying
from django_ayework.flow.acting import complete, completing
from django_ayework.flow.controls import limit, pause, resume
from django_ayework.flow.enqueue import refuse_arguments, request_of
from django_ayework.flow.explain import explain
from django_ayework.flow.handles import get_handle
from django_ayework.flow.requests import called_from_async_code, twinned
from django_ayework.rules.explain.reasons import Explanation
from django_ayework.rules.identity import require_work_id

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


@overload
def cancel(id: str) -> Handle[Any, Any]: ...
@overload
def cancel(*, group: str | Handle[Any, Any]) -> list[str]: ...
@twinned
def cancel(
    id: str | None = None, *, group: str | Handle[Any, Any] | None = None
) -> Handle[Any, Any] | list[str]:
    """End a work as cancelled; return its handle. Its waiters are decided as by any end without success.

    A handler that runs it is told by its signal; what it returns is refused. A gate's works are not queued,
    and count as cancelled for whoever watches them. With ``group``, the id of a group or a handle of a work
    in it, all works of the group are cancelled that have not ended, in one transaction per page; return
    their ids.

    Raises WorkNotFound, and AlreadyCompleted for one work that has ended.
    """
    require_one(id, group, "cancel")
    if id is None:
        return acting.cancel_group(group_id_of(group))
    row = acting.cancel_one(id)
    return handles.Handle(row.id, row.group)


@overload
def retry(id: str, input: Any = None, *, again: bool = False) -> Handle[Any, Any]: ...
@overload
def retry(*, group: str | Handle[Any, Any]) -> list[str]: ...
@twinned
def retry(
    id: str | None = None,
    input: Any = None,
    *,
    again: bool = False,
    group: str | Handle[Any, Any] | None = None,
) -> Handle[Any, Any] | list[str]:
    """Make a dead or cancelled work pending again, with a full budget of attempts; return its handle.

    ``expires`` counts anew, an explicit ``deadline`` stays; the group re-opens; waiters that died because of
    this work wait again. With ``again=True`` a success is run again, too: as a new work with the same input
    and options, whose ``parent`` is the old one and whose handle is returned. With ``group``, the id of a
    group or a handle of a work in it, all its dead and cancelled works are retried one by one; return the
    ids of those that start over or wait again.

    Raises WorkNotFound; NotRetryable for a work that is not dead or cancelled, and for a gate that still
    cannot open, naming the works to retry first; of a group, once the others were retried.
    """
    require_one(id, group, "retry")
    if id is not None:
        return retrying.retry(id, input, again)
    if input is not None or again:
        raise TypeError("expected retry(group=...) without input and again=, which are for one work.")
    return retrying.retry_group(group_id_of(group))


def require_one(id: object, group: object, call: str) -> None:
    """Raise TypeError unless either a work or a group is given."""
    if (id is None) == (group is None):
        got = "neither" if id is None else "both"
        raise TypeError(f"expected either {call}(id) or {call}(group=...), got {got}.")


def group_id_of(group: str | Handle[Any, Any] | None) -> str:
    """Return the id of a group; a handle stands for the group of its work."""
    return require_work_id(getattr(group, "group_id", group))


@overload
async def aretry(id: str, input: Any = None, *, again: bool = False) -> Handle[Any, Any]: ...
@overload
async def aretry(*, group: str | Handle[Any, Any]) -> list[str]: ...
async def aretry(id: Any = None, input: Any = None, **options: Any) -> Handle[Any, Any] | list[str]:
    """See retry()."""
    found: Handle[Any, Any] | list[str] = await sync_to_async(retry)(id, input, **options)
    return found


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


@overload
async def acancel(id: str) -> Handle[Any, Any]: ...
@overload
async def acancel(*, group: str | Handle[Any, Any]) -> list[str]: ...
async def acancel(id: Any = None, **options: Any) -> Handle[Any, Any] | list[str]:
    """See cancel()."""
    found: Handle[Any, Any] | list[str] = await sync_to_async(cancel)(id, **options)
    return found


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
