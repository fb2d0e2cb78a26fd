"""Bulk actions: an act on all works that match a filter, carried out page by page by workers.

To create one costs the same whatever matches. A page is one transaction: the act, the counts and the cursor
commit together. So a kill neither repeats an act nor loses one.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import Error, InterfaceError, OperationalError

from django_ayework.define.options import check_pace
from django_ayework.define.requests import new_uuid7
from django_ayework.define.types import registry
from django_ayework.documentation import value_error
from django_ayework.errors import did_you_mean
from django_ayework.flow.acts import ACTS, ActReport
from django_ayework.flow.hooks import report
from django_ayework.flow.notify import wake_workers
from django_ayework.models import BulkAction, Work
from django_ayework.rules.causes import normalised
from django_ayework.rules.durations import later, require_aware
from django_ayework.rules.formatting import error_line, error_text
from django_ayework.rules.states import Status
from django_ayework.store.bulk_actions import (
    change_action,
    delete_ended_actions,
    lock_due_action,
    lock_running_action,
    next_action_due,
)
from django_ayework.store.causes import cause_of
from django_ayework.store.database import (
    alias,
    clock,
    dialect,
    has_timed_out,
    in_own_transaction,
    is_contention,
    on_commit,
    own_transaction,
    rows,
    sync_only,
)
from django_ayework.store.deletion import lock_steps
from django_ayework.store.dependencies import read_waiters
from django_ayework.store.selection import COUNTED, Cursor, Page, Selection, require_known, selection_of

#: Works of one page: their rows stay locked until its transaction ends.
PAGE = 25
#: Explicit ids that one bulk action takes, and refusals that it keeps.
IDS, KEPT = 500, 20
#: Seconds of delay that a bulk action with a pace makes up for, as its worker was busy or gone.
SLACK = 2.0
#: The columns that a page writes.
WRITTEN = ("done", "refused", "report", "status", "cursor", "next_at", "ended_at")
#: Seconds until a page is tried again that another worker has.
OTHERS_TURN = 0.5
#: Most seconds between two pages on SQLite: a transaction that waits for the lock looks for it this often.
LONGEST_GAP = 0.1
#: Stored as the number of expected works when nobody has counted them.
UNKNOWN = -1
#: The key, among the parameters, of the error of the cause: works that are retried have no cause any more.
ERROR = "error"
#: For how long bulk actions that have ended are kept.
KEPT_FOR = timedelta(days=30)

#: Errors of a database that is away, unless a statement took too long.
AWAY = (InterfaceError, OperationalError)

HELD = "another transaction held this work, or one that it belongs to; act on it again."


# Creating, stopping, resuming


@sync_only
def start_bulk_action(
    action: str,
    filter: Mapping[str, Any],
    *,
    parameters: Mapping[str, Any] | None = None,
    per_minute: int | None = None,
    until: datetime | None = None,
    by: str = "",
) -> BulkAction:
    """Store an action on all works that match a filter; workers begin to carry it out after the commit.

    ``action`` is "retry", "run_again", "run_now", "complete", "change_priority", "change_queue", "cancel" or
    "delete". ``parameters`` are those of the action, such as ``{"queue": "slow"}``. The keys of ``filter``
    are columns of works, such as ``status``, ``type`` and ``queue``, or ``ids`` or ``cause``. ``per_minute``
    is how many works are acted on in a minute (None: no bound). Works that die, or are queued, after
    ``until``, an aware datetime, are left alone: now, unless it is given. ``by`` is the name of a user.

    Raises ValueError for an unknown action, parameter or key, and for a value that one of them cannot have.
    It does so, too, for an unknown type without works, an empty filter, over 500 ids, and a pace below 1.

    Example::

        start_bulk_action("retry", {"status": "dead", "type": "shop.charge"}, per_minute=600)
    """
    if not filter:
        raise value_error(
            "bulk-action-arguments",
            "expected filter= to choose works, got {}, which is every work; give a status at least, such as "
            '{"status": "dead"}.',
        )
    return start(action, filter, parameters or {}, per_minute, until, by)


def start(
    action: str,
    filter: Mapping[str, Any],
    parameters: Mapping[str, Any],
    per_minute: int | None,
    until: datetime | None,
    by: str,
) -> BulkAction:
    """Do what :func:`start_bulk_action` does, also for all works."""
    if action not in ACTS:
        raise value_error(
            "bulk-action-arguments",
            f"expected action= to be one of {', '.join(ACTS)}; got: {action!r}.{did_you_mean(action, ACTS)}",
        )
    require_parameters(action, parameters)
    require_known(filter)
    if per_minute is not None:
        check_pace(per_minute, "per_minute")
    if len(filter.get("ids", ())) > IDS:
        raise value_error(
            "bulk-action-arguments",
            f"expected at most {IDS} ids, got {len(filter['ids'])}; filter by something else.",
        )
    now = clock.read()
    row = BulkAction(
        id=new_uuid7(),
        action=action,
        parameters=json.dumps(dict(parameters)),
        filter=json.dumps(dict(filter)),
        until=now if until is None else min(require_aware(until, "until"), now),
        per_minute=per_minute,
        next_at=now,
        created_at=now,
        created_by=by[:150],
    )
    counted = selected(row, ACTS[action].statuses).count()
    if counted == 0 and "type" in filter and registry.find(filter["type"]) is None:
        require_work_of(filter["type"])
    row.expected = UNKNOWN if counted is None else counted
    if error := error_of_cause(filter_of(row)):
        row.parameters = json.dumps({**parameters, ERROR: error})
    return stored(row)


def require_parameters(action: str, parameters: Mapping[str, Any]) -> None:
    """Raise ValueError unless the parameters are those of the action."""
    checks = ACTS[action].parameters
    required = [name for name, check in checks.items() if check is not None]
    if not set(required) <= parameters.keys() <= checks.keys():
        expected = " and ".join(checks) or "nothing"
        raise value_error(
            "bulk-action-arguments",
            f"expected parameters= of the action {action!r} to have {expected}, got: {dict(parameters)!r}.",
        )
    for name, check in checks.items():
        if check is not None:
            check(parameters[name], name)


def require_work_of(type: str) -> None:
    """Raise ValueError if there is no work of an unknown type: its name is misspelt."""
    if not rows(Work).filter(type=type).exists():
        raise value_error(
            "bulk-action-arguments",
            f"expected type= in the filter to be a known type, or that of a work, got: {type!r}."
            f"{did_you_mean(type, registry.names())}",
        )


@own_transaction
def stored(row: BulkAction) -> BulkAction:
    """Insert a bulk action, and wake workers after the commit."""
    row.save(using=alias(), force_insert=True)
    on_commit(wake_workers)
    return row


def stop(id: str) -> bool:
    """Stop a bulk action after its present page; return whether it was running."""
    return change_action(id, ["running"], status="stopped", next_at=None, ended_at=clock.now())


@own_transaction
def resume(id: str) -> bool:
    """Let a bulk action that was stopped, or has failed, go on where it was; return whether it was one."""
    columns: dict[str, Any] = {"status": "running", "next_at": clock.read(), "ended_at": None}
    resumed = change_action(id, ["stopped", "failed"], **columns)
    on_commit(wake_workers)
    return resumed


def filter_of(row: BulkAction) -> dict[str, Any]:
    """Return the filter of a bulk action."""
    filter: dict[str, Any] = json.loads(row.filter)
    return filter


def error_of(row: BulkAction) -> str:
    """Return the error of the cause in the filter as it was at the start; "" if it was not known."""
    return str(json.loads(row.parameters).get(ERROR, ""))


def report_of(row: BulkAction) -> list[tuple[str, str]]:
    """Return the refusals that were kept, each an id and a sentence, and errors, which have no id.

    A report that cannot be read is an error.
    """
    try:
        return [(str(id), str(sentence)) for id, sentence in json.loads(row.report)]
    except (TypeError, ValueError):
        return [("", row.report)]


def error_of_cause(filter: Mapping[str, Any]) -> str:
    """Return the error that the dead works of the cause in a filter share; "" if it is not known."""
    if not {"type", "reason", "cause"} <= filter.keys():
        return ""
    found = cause_of((str(filter["type"]), str(filter["reason"]), str(filter["cause"])))
    return "" if found is None else normalised(found.error)


class Place(NamedTuple):
    """Where the next page begins: behind a work of the pass of this number. None is its beginning."""

    after: Cursor | None = None
    number: int = 0

    @property
    def text(self) -> str:
        """The form in which it is stored."""
        moment, id = (self.after.moment.isoformat(), self.after.id) if self.after else (None, None)
        return json.dumps([moment, id, self.number])


def place_of(row: BulkAction) -> Place:
    """Return where the next page begins."""
    if not row.cursor:
        return Place()
    moment, id, number = json.loads(row.cursor)
    return Place(Cursor(datetime.fromisoformat(moment), id) if id else None, number)


def passes_of(row: BulkAction) -> list[frozenset[Status]]:
    """Return the statuses of each pass. Waiters have the first, for acts after which a gate may open."""
    act = ACTS[row.action]
    if not act.waiters_first or "status" in filter_of(row):
        return [act.statuses]
    waiters = frozenset({Status.BLOCKED})
    return [waiters, act.statuses - waiters]


def selected(row: BulkAction, statuses: frozenset[Status]) -> Selection:
    """Return the works of a bulk action that have one of these statuses."""
    return selection_of(filter_of(row), statuses, row.until)


def count_of(action: str, filter: Mapping[str, Any], until: datetime) -> int | None:
    """Count the works that a bulk action would act on, up to one more than 10 000; None: too many to look at.

    Raises ValueError as :func:`start_bulk_action` does.
    """
    return selection_of(filter, ACTS[action].statuses, until).count()


# Carrying out


def carry_out(seconds: float, is_over: Callable[[], bool] = lambda: False) -> float | None:
    """Carry out pages that are due, for about so many seconds; return how long none is due, None if none is.

    A page that is due and that another worker has is tried again after a while.
    """
    until, is_free = time.monotonic() + seconds, True
    while is_free and not is_over() and time.monotonic() < until:
        began = time.monotonic()
        is_free = step()
        if is_free and not dialect().lock_codes:  # SQLite has one lock: leave it to others for as long
            time.sleep(min(time.monotonic() - began, LONGEST_GAP))
    due_at = next_action_due(ACTS)
    if due_at is None:
        return None
    pause = (due_at - clock.now()).total_seconds()
    return max(pause, 0.0 if is_free else OTHERS_TURN)


@dataclass(slots=True)
class Tried:
    """The bulk action whose page was tried last."""

    id: str = ""


def step(at: datetime | None = None) -> bool:
    """Carry out one page; return whether one was due that no other worker has.

    When others hold rows of the page, its first work is tried alone; when that is held, too, it is passed
    over. It is also tried alone when a statement of the page takes too long. An error that would come again
    ends the bulk action as failed. Raises errors of a database that is away.
    """
    tried = Tried()
    for most, are_held in ((PAGE, False), (1, False), (1, True)):
        try:
            return in_own_transaction(carry_out_page, most, are_held, tried, at or clock.now())
        except Exception as error:
            if isinstance(error, Error) and is_contention(error):
                if dialect().lock_codes:
                    continue
                return False  # SQLite has one lock for everything, so no work is to blame
            is_slow = isinstance(error, Error) and has_timed_out(error)
            if is_slow and most > 1:
                continue
            if not tried.id or (isinstance(error, AWAY) and not is_slow):
                raise
            fail(tried.id, error)
            return True
    return False


def carry_out_page(most: int, are_held: bool, tried: Tried, now: datetime) -> bool:
    """Act on the next works of the bulk action that is due for the longest; return whether there was one.

    Its row is locked before the works are read, and until the commit: of two workers the later one skips it,
    or begins behind the cursor that the first has written. Every act here joins this transaction. Works that
    others hold (``are_held``) are refused.
    """
    row = lock_due_action(now, ACTS)
    if row is None:
        return False
    tried.id = row.id
    pace = PAGE if row.per_minute is None else math.ceil(row.per_minute / 60)
    place = place_of(row)
    selection = selected(row, passes_of(row)[place.number])
    # A gate that waits for other waiters was queued after them, and is acted on before their end opens it.
    page = selection.page(place.after, min(most, pace), latest_first=ACTS[row.action].waiters_first)
    done = ActReport()
    if are_held:
        done.refused.update(dict.fromkeys(page.ids, HELD))
    elif ids := still_matching(selection, page.ids):
        done = ACTS[row.action].run(ids, json.loads(row.parameters))
    advance(row, place, page, done, now)
    return True


def still_matching(selection: Selection, ids: list[str]) -> list[str]:
    """Lock works, and return those that match now: others may have acted on them since they were read.

    Those that wait for others, or did, are not locked here: an act locks their waiters before them.
    """
    waiters = read_waiters(ids)
    lock_steps(id for id in ids if id not in waiters)
    return selection.among(ids)


def advance(row: BulkAction, place: Place, page: Page, done: ActReport, now: datetime) -> None:
    """Write what became of a page, as many refusals as there is room for, and when the next one is due."""
    row.done += len(done.done) + len(done.revived)
    row.refused += len(done.refused)
    kept = [*report_of(row), *((id, error_line(text)) for id, text in done.refused.items())]
    row.report = json.dumps(kept[:KEPT])
    following = place._replace(after=page.next) if page.next else Place(number=place.number + 1)
    if following.number == len(passes_of(row)):
        row.status, row.next_at, row.ended_at = "done", None, clock.now()
    else:
        row.cursor = following.text
        row.next_at = next_moment(row, len(page.ids), now)
    row.save(using=alias(), update_fields=WRITTEN)


def next_moment(row: BulkAction, works: int, now: datetime) -> datetime:
    """Return when the next page is due, after so many works.

    It follows the moment at which this one was due, so that short delays do not slow the pace down.
    """
    if row.per_minute is None or row.next_at is None:
        return now
    return later(max(row.next_at, later(now, -SLACK)), works * 60 / row.per_minute)


@own_transaction
def fail(id: str, error: Exception) -> None:
    """End a bulk action as failed, with its error: a page that breaks is not tried again and again."""
    report(error, "queue", f"the bulk action {id} failed")
    row = lock_running_action(id)
    if row is not None:
        kept = [("", error_line(error_text(error))), *report_of(row)]
        change_action(
            id,
            ["running"],
            status="failed",
            next_at=None,
            ended_at=clock.now(),
            report=json.dumps(kept[: KEPT + 1]),
        )


def prune(now: datetime, limit: int) -> int:
    """Delete bulk actions that ended 30 days ago; return how many."""
    return delete_ended_actions(now - KEPT_FOR, limit)


def is_capped(row: BulkAction) -> bool:
    """Tell whether more works were expected than were counted."""
    return row.expected > COUNTED
