"""The functions that users call. Each ``a…`` function is the awaitable form of that without the ``a``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar, Unpack, cast, overload

from asgiref.sync import markcoroutinefunction, sync_to_async
from django.dispatch import Signal

from django_ayework.compat import calling_frame
from django_ayework.define.handles import C, G, Handle, P, R, T, WorkState
from django_ayework.define.options import EnqueueOptions
from django_ayework.define.requests import WorkRequest, watch
from django_ayework.documentation import type_error
from django_ayework.flow import acts, bulk_actions, controls, counts, handles, termination
from django_ayework.flow import enqueue as queueing
from django_ayework.flow import explain as explaining
from django_ayework.flow import retry as retrying
from django_ayework.flow.enqueue import refuse_arguments, request_of
from django_ayework.rules.identity import require_work_id
from django_ayework.store.database import sync_only

F = TypeVar("F", bound=Callable[..., Any])


def awaitable(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return the awaitable form of a function that queries the database; it runs in a thread."""

    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return await sync_to_async(function)(*args, **kwargs)

    call.__name__ = call.__qualname__ = f"a{function.__name__}"
    call.__doc__ = f"See {function.__name__}()."
    return call


def watched(call: F) -> F:
    """Let a request count as dropped if the coroutine that is to queue it is discarded without ``await``."""

    @markcoroutinefunction
    @functools.wraps(call)
    def noted(*args: Any, **kwargs: Any) -> Any:
        if watch.on and args and isinstance(args[0], WorkRequest):
            watch.note(args[0], calling_frame(1))
        return call(*args, **kwargs)

    return cast(F, noted)


@overload
def enqueue(work: WorkRequest[R, G, C], /, **options: Unpack[EnqueueOptions]) -> Handle[R, G, C]: ...
@overload
def enqueue(work: str, input: Any = None, /, **options: Unpack[EnqueueOptions]) -> Handle[Any, Any]: ...
@sync_only
def enqueue(work: WorkRequest[Any, Any] | str, input: Any = None, /, **options: Any) -> Handle[Any, Any]:
    """Queue a work in the current transaction, and return its handle.

    The work is committed or rolled back with that transaction; ``on_commit=True`` inserts it after the
    commit. ``work`` is a built request, or the name of a type. After a name comes the input: a mapping of
    names to values, or the one input of a batch type. If the same request was queued before, or
    ``dedup=Dedup(key)`` finds a work of this type and key, the handle is that of the existing work and has
    ``deduplicated`` True.

    Raises UnknownWorkType, TypeError for arguments and options that do not fit, InvalidOption, NotEncodable,
    PayloadTooLarge and InvalidWorkId.

    Example::

        with transaction.atomic():
            order = Order.objects.create(...)
            enqueue(send_receipt(order_id=order.pk), delay=60, about=order)
    """
    if isinstance(work, str):
        refuse_arguments(work, options)
    return queueing.enqueue_one(request_of(work, input), options)


@sync_only
def enqueue_many(
    works: Iterable[WorkRequest[R, G, C]], /, *, together: bool = False, **options: Unpack[EnqueueOptions]
) -> list[Handle[R, G, C]]:
    """Queue all works or none, and return their handles in order. The options apply to each work.

    Each work is a group of its own. With ``together=True`` all works are one group. Raises as ``enqueue``.

    Example::

        enqueue_many(send_receipt(order_id=id) for id in paid_today())
    """
    return [*queueing.enqueue_all(works, options, together)]


def enqueue_on(
    signal: Signal,
    sender: Any = None,
    *,
    make_work: Callable[..., WorkRequest[Any, Any] | None],
    dispatch_uid: str | None = None,
) -> Callable[[], None]:
    """Queue the request that ``make_work`` returns whenever a signal is sent, in the sender's transaction.

    ``make_work`` is given the keywords of the signal, and returns a request, or None to queue nothing. Return
    a function that disconnects.

    Example::

        enqueue_on(post_save, Order, make_work=lambda instance, **more: index(order_id=instance.pk))
    """

    def receiver(signal: Signal, **keywords: Any) -> None:
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
@sync_only
def cancel(
    id: str | None = None, *, group: str | Handle[Any, Any] | None = None
) -> Handle[Any, Any] | list[str]:
    """Cancel a work, decide the works that wait for it, and return its handle.

    If the handler is running, its ``ctx.signal`` is set, and its outcome is refused. A cancelled gate
    releases no works; gates that watch these count them as cancelled.

    With ``group``, the id of a group or a handle of a work in it, all works of the group that have not ended
    are cancelled, in one transaction per page. Return their ids.

    Raises WorkNotFound, and AlreadyCompleted for one work that has ended.
    """
    require_one(id, group, "cancel")
    if id is None:
        return termination.cancel_group(group_id_of(group))
    row = termination.cancel_one(id)
    return handles.Handle(row.id, row.group)


@overload
def retry(id: str, input: Any = None, *, again: bool = False) -> Handle[Any, Any]: ...
@overload
def retry(*, group: str | Handle[Any, Any]) -> list[str]: ...
@sync_only
def retry(
    id: str | None = None,
    input: Any = None,
    *,
    again: bool = False,
    group: str | Handle[Any, Any] | None = None,
) -> Handle[Any, Any] | list[str]:
    """Make a dead or cancelled work pending again, with all its attempts, and return its handle.

    ``expires`` counts anew, and an explicit ``deadline`` stays. The group opens again, and waiters that died
    because of this work wait again. ``input`` replaces the input of the work, in the form that
    ``enqueue(name, input)`` takes. With ``again=True`` a success is repeated, too, by a new work with the
    same input and options. Its ``parent`` is the success, and its handle is returned.

    With ``group``, the id of a group or a handle of a work in it, all dead and cancelled works of the group
    are retried one by one. Return the ids of those that start or wait again.

    Raises WorkNotFound. Raises NotRetryable for a work that is neither dead nor cancelled, and for a gate
    that still cannot open; ``members`` of the error are the works to retry first. With ``group``, ``members``
    are the works that could not be retried, and the other works were retried.

    Example::

        for letter in DeadLetter.objects.filter(type="shop.charge"):
            retry(letter.id)
    """
    require_one(id, group, "retry")
    if id is not None:
        return retrying.retry(id, input, again)
    if input is not None or again:
        raise type_error(
            "act-arguments", "expected retry(group=...) without input and again=, which are for one work."
        )
    return acts.retry_group(group_id_of(group))


def require_one(id: object, group: object, call: str) -> None:
    """Raise TypeError unless either a work or a group is given."""
    if (id is None) == (group is None):
        got = "neither" if id is None else "both"
        raise type_error("act-arguments", f"expected either {call}(id) or {call}(group=...), got {got}.")


def group_id_of(group: str | Handle[Any, Any] | None) -> str:
    """Return the id of a group; a handle stands for the group of its work."""
    return require_work_id(getattr(group, "group_id", group))


@sync_only
def trigger(*ids: str) -> list[WorkState]:
    """Make all given works due now, or none; return their states in the order given, each once.

    Raises WorkNotFound, and NotTriggerable for a work that is not scheduled.
    """
    return acts.all_or_none(acts.trigger, ids)


@sync_only
def change_priority(*ids: str, priority: int) -> list[WorkState]:
    """Change the priority of all given works, or of none; return their states in the order given, each once.

    A work with a fairness label gets the turn after the works of the same label and priority.

    Raises WorkNotFound; NotWaiting for a work that runs or has ended; InvalidOption.
    """
    return acts.all_or_none(acts.change_priority, ids, priority)


@sync_only
def change_queue(*ids: str, queue: str) -> list[WorkState]:
    """Move all given works to another queue, or none; return their states in the order given, each once.

    Raises WorkNotFound; NotWaiting for a work that runs or has ended; InvalidOption.
    """
    return acts.all_or_none(acts.change_queue, ids, queue)


@sync_only
def delete_chains(*ids: termination.Chain, cascade: bool = False) -> list[str]:
    """Delete chains with all their works; return the ids of the chains that existed, in the order given.

    ``ids`` are ids of chains, which are the ids of their first works, or handles of works in the chains. With
    ``cascade=True`` the chains that block any of their works are deleted too, recursively, and come last in
    the list. The signal of a running handler is set to ``not_found``, and its outcome is refused. Waiters of
    a work that had not ended are decided as if the work were cancelled.

    Raises BlockerReference, and deletes nothing, when a chain blocks, or had blocked, a work that stays.

    Example::

        with transaction.atomic():
            delete_chains(export.chain_id, cascade=True)
            export.delete()
    """
    return termination.delete_chains(ids, cascade)


command_worker = controls.command_worker
complete = termination.complete
completing = termination.completing
explain = explaining.explain
get_handle = handles.get_handle
limit = controls.limit
pause = controls.pause
resume = controls.resume
start_bulk_action = bulk_actions.start_bulk_action
work_counts = counts.work_counts

enqueue_in_thread = awaitable(enqueue)  # pyright infers the overloads of a name, and not of a nested call
aenqueue = watched(enqueue_in_thread)
aenqueue_many = awaitable(enqueue_many)
acancel = awaitable(cancel)
achange_priority = awaitable(change_priority)
achange_queue = awaitable(change_queue)
acommand_worker = awaitable(command_worker)
acomplete = awaitable(complete)
adelete_chains = awaitable(delete_chains)
aexplain = awaitable(explain)
alimit = awaitable(limit)
apause = awaitable(pause)
aresume = awaitable(resume)
aretry = awaitable(retry)
astart_bulk_action = awaitable(start_bulk_action)
atrigger = awaitable(trigger)
awork_counts = awaitable(work_counts)
