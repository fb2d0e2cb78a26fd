"""The unit of work: what one transaction ended, inserted and changed in groups, flushed in a fixed order.

The order keeps locks and races simple: works first, then waiters wave by wave (each in id order), then groups
in id order. Groups come last because all settlements of a busy group lock the same row.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from django_ayework.conf import get_settings
from django_ayework.define.requests import GateRequest
from django_ayework.errors import ChainNotFound, InvalidInstruction
from django_ayework.flow.circles import require_no_circle
from django_ayework.flow.events import Effects, group_done_has_receivers
from django_ayework.flow.identity import leave_existing, one_per_id, place_units
from django_ayework.flow.new_works import NewWork
from django_ayework.flow.payloads import release_ids
from django_ayework.flow.states import readable, readable_result
from django_ayework.models import Attempt
from django_ayework.rules.conditions import (
    Condition,
    Contribution,
    Decision,
    GroupValue,
    condition_to_plain,
    decide,
    fold,
)
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.database import is_spoiled
from django_ayework.store.dependencies import WaiterRow, Watch, insert_waiters
from django_ayework.store.insert import insert_works
from django_ayework.store.rows import (
    GroupRow,
    WorkRow,
    chain_ends,
    delete_emptied,
    insert_groups,
    lock_groups,
    statuses_of,
    write_groups,
)


class ContributionFailed(Exception):
    """The ``append`` functions of contributions raised; the attempts of their works have failed."""

    def __init__(self, causes: Mapping[str, BaseException]) -> None:
        work_id, self.cause = next(iter(causes.items()))
        self.__cause__ = self.cause
        super().__init__(f"the append function of {work_id} raised: {self.cause}")
        #: What was raised, by the id of the work.
        self.causes = causes


@dataclass(slots=True)
class GroupDelta:
    """The changes of one group."""

    is_new: bool = False
    may_exist: bool = False  # another transaction may have inserted the new group just now
    shrinks: bool = False  # members are deleted, perhaps all of them
    open: int = 0
    total: int = 0
    dead: int = 0
    contributions: list[tuple[str, Sequence[Contribution]]] = field(default_factory=list)  # of each work


class GroupChanges:
    """Collects the changes of groups; :meth:`close` writes them under the groups' locks."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.deltas: dict[str, GroupDelta] = defaultdict(GroupDelta)
        #: What the contributions of works raised.
        self.failed: dict[str, BaseException] = {}

    def founded(self, root_id: str) -> None:
        """Note that a work becomes the first, open member of a group of its own."""
        self.deltas[root_id] = GroupDelta(is_new=True, open=1, total=1)

    def founded_empty(self, group_id: str) -> None:
        """Note a new group without members. It is not written if another transaction has queued them all."""
        self.deltas[group_id] = GroupDelta(is_new=True, may_exist=True)

    def count(self, group_id: str, open: int = 0, total: int = 0, dead: int = 0) -> None:
        """Note by how much the counts of a group's members change."""
        delta = self.deltas[group_id]
        delta.open += open
        delta.total += total
        delta.dead += dead

    def member_deleted(self, group_id: str, status: Status | str) -> None:
        """Note that a member's row is gone; ``status`` is its last status."""
        is_live, is_dead = not is_terminal(status), status == Status.DEAD
        self.count(group_id, open=-is_live, total=-1, dead=-is_dead)
        self.deltas[group_id].shrinks = True

    def contributed(self, group_id: str, work_id: str, contributions: Sequence[Contribution]) -> None:
        """Note what a member contributes to the value, in list order; values are encoded texts."""
        self.deltas[group_id].contributions.append((work_id, contributions))

    def close(self, effects: Effects) -> None:
        """Write all changes, groups locked in id order; announce the groups that have settled.

        A group whose last member was deleted is deleted, too, without an event.
        """
        if not self.deltas:
            return
        for row in self._written():
            if row.done_at != self.now:
                continue
            effects.ended.append(row.id)
            if group_done_has_receivers():
                effects.group_done(row.id, readable(row.value, get_settings().codec))

    def _written(self) -> Collection[GroupRow]:
        """Write all changes; return the groups as they are now."""
        known = lock_groups(id for id, delta in self.deltas.items() if delta.may_exist or not delta.is_new)
        for id in delete_emptied(id for id in known if self.deltas[id].shrinks):
            del known[id]
        joined = (id for id, delta in self.deltas.items() if delta.is_new and delta.total)
        founded = {id: GroupRow(id) for id in joined if id not in known}
        written = {id: self.applied(row) for id, row in {**known, **founded}.items()}
        if self.failed:  # all of them, so that the others need one more try
            raise ContributionFailed(self.failed)
        insert_groups(row for id, row in written.items() if id in founded)
        write_groups(row for id, row in written.items() if id in known)
        return written.values()

    def applied(self, row: GroupRow) -> GroupRow:
        """Return the group with its changes; note works whose contributions raise, and leave them out."""
        delta = self.deltas[row.id]
        value = GroupValue(row.value, row.final)
        for work_id, contributions in delta.contributions:
            try:
                value = fold(value, contributions)
                require_unspoilt(work_id)
            except BaseException as error:  # of ``append`` or of a codec
                self.failed[work_id] = error
                if is_spoiled():  # the functions of other works would fail because of this one
                    raise ContributionFailed({work_id: error}) from error
        gained = row.adding(delta.open, delta.total, delta.dead, self.now)
        return gained._replace(value=value.value, final=value.final)


def require_unspoilt(work_id: str) -> None:
    """Raise InvalidInstruction if ``append`` has spoilt the transaction: no statement would succeed."""
    if is_spoiled():
        raise InvalidInstruction(
            "expected the function given as append not to catch an error of the database, unless the failing "
            "part is in transaction.atomic() of its own, and not to close the connection.",
            id=work_id,
            code="append-spoils-transaction",
        )


#: What each waiter watches, by its id.
Watches: TypeAlias = dict[str, tuple[Watch, ...]]

#: The condition of a work with blockers, and its status when that cannot be met.
OF_BLOCKERS: tuple[Condition, str] = ("all-success", "dead")


class UnitOfWork:
    """Collects everything that follows from the transitions of one transaction."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.effects = Effects(now)
        self.groups = GroupChanges(now)
        #: How watched works ended in this wave; None undoes an end.
        self.outcomes: dict[str, Status | None] = {}
        #: The same of chains, by the id of the first work.
        self.chain_outcomes: dict[str, Status | None] = {}
        #: Chains that go on in this transaction, though their next work may not be inserted yet.
        self.continuing: set[str] = set()
        #: Waiters to decide although no work that they watch has ended.
        self.undecided: set[str] = set()
        #: Waiters that watch works of other transactions: to be rechecked after commit.
        self.rechecks: list[str] = []
        #: Waiters inserted in this transaction.
        self.waiters: set[str] = set()
        #: Works that others may have begun to watch unseen: their watchers are rechecked after commit.
        self.unresolved: set[str] = set()
        self.attempts: list[Attempt] = []
        #: Works that settled works have output; see insert_outputs().
        self.outputs: list[NewWork] = []

    def ended(self, row: WorkRow, status: Status, continues: bool = False) -> None:
        """Note that a work has reached a terminal status; ``row`` is as it now is.

        Its chain has ended with it, unless it ``continues``. A work that this transaction has inserted could
        not be locked by a transaction that has begun to watch it, so its watchers are rechecked.
        """
        self.outcomes[row.id] = status
        self.effects.ended.append(row.id)
        if not continues:
            self.chain_outcomes[row.chain] = status
            if row.chain != row.id:
                self.effects.ended.append(row.chain)
        if row.id in self.waiters:
            self.unresolved.add(row.id)
        if row.group_id is not None:
            self.groups.count(row.group_id, open=-1, dead=status is Status.DEAD)
        elif group_done_has_receivers():
            self.effects.group_done(row.id, readable_result(row))

    def all_succeeded(self, rows: Sequence[WorkRow]) -> None:
        """Note that works have succeeded, and their chains, when there are no receivers of single ends.

        It does what ended() does, for thousands at a time. The works have run, so none is new in this
        transaction.
        """
        ids = [row.id for row in rows]
        chains = [row.chain for row in rows]
        self.outcomes.update(dict.fromkeys(ids, Status.SUCCESS))
        self.chain_outcomes.update(dict.fromkeys(chains, Status.SUCCESS))
        self.effects.ended += ids
        self.effects.ended += [chain for chain, id in zip(chains, ids, strict=True) if chain != id]
        groups = Counter(row.group_id for row in rows)
        for group_id, number in groups.items():
            if group_id is not None:
                self.groups.count(group_id, open=-number)

    def reopened(self, row: WorkRow, was_dead: bool) -> None:
        """Note that an ended work is live again."""
        self.outcomes[row.id] = None
        self.chain_outcomes[row.chain] = None
        if row.group_id is not None:
            self.groups.count(row.group_id, open=1, dead=-was_dead)

    def insert(
        self, new_works: Sequence[NewWork], released: bool = False, succeeded: Collection[str] = ()
    ) -> set[str]:
        """Insert works; return the ids that existed already, whose works are left as they are.

        Raises ChainNotFound for a blocker that does not exist, and InvalidInstruction for works that wait for
        one another, unless a gate has ``released`` the works.
        """
        new_works, watches = blocked(one_per_id(new_works, released), self.continuing, released, succeeded)
        if not released:
            require_no_circle(new_works)
        taken = insert_works([new_work.row for new_work in new_works])
        if taken:
            leave_existing([new_work.row for new_work in new_works if new_work.row.id in taken], released)
            new_works = [new_work for new_work in new_works if new_work.row.id not in taken]
        for group_id, members in Counter(new_work.row.group_id for new_work in new_works).items():
            if group_id is not None:
                self.groups.count(group_id, open=members, total=members)
        self.effects.queued([new_work.row for new_work in new_works])
        self.insert_waiters(new_works, watches)
        return taken

    def insert_outputs(self) -> None:
        """Insert the outputs of settled works all at once, so that their units are locked in one order."""
        if self.outputs:
            new_works, self.outputs = self.outputs, []
            self.insert(place_units(self.effects, new_works).fresh)

    def insert_waiters(self, new_works: Sequence[NewWork], watches: Watches) -> None:
        """Insert the waiters of new gates and of new works with blockers.

        Works that are new here, and those that a new gate would release and that do not exist, cannot be
        settled by another transaction before this one commits. Any other that has not succeeded may be
        settled right now by a transaction that cannot see the new edges, so its waiter is rechecked after the
        commit. A gate whose condition is met already, or never will be, is decided with this transaction.
        """
        gates = [new_work.gate for new_work in new_works if new_work.gate is not None]
        if not gates and not watches:
            return
        private = {new_work.row.id for new_work in new_works}
        released = {id for gate in gates for id in gate.watched}.intersection(release_ids(gates)) - private
        private |= released - statuses_of(released).keys()
        watched = watched_by_gates(gates, private)
        watched.update(
            (new_work.row.id, watches[new_work.row.id]) for new_work in new_works if new_work.blockers
        )
        conditions: dict[str, tuple[Condition, str]] = {
            gate.id: (gate.condition, gate.on_unmet) for gate in gates
        }
        waiters = [
            waiter_row(id, watching, private, *conditions.get(id, OF_BLOCKERS))
            for id, watching in watched.items()
        ]
        insert_waiters(waiters, watched)
        self.rechecks += [waiter.work_id for waiter in waiters if waiter.recheck]
        self.waiters.update(watched)
        tallies = {waiter.work_id: waiter.tally for waiter in waiters}
        self.undecided.update(
            gate.id for gate in gates if decide(gate.condition, tallies[gate.id]) is not Decision.WAIT
        )


def waiter_row(
    id: str, watching: Sequence[Watch], private: set[str], condition: Condition, on_unmet: str
) -> WaiterRow:
    """Return a new waiter, to be rechecked if it watches works that others could be settling."""
    return WaiterRow(
        work_id=id,
        condition=json.dumps(condition_to_plain(condition)),
        on_unmet=on_unmet,
        total=len(watching),
        succeeded=sum(watch.outcome == Status.SUCCESS for watch in watching),
        missed=0,
        recheck=any(not watch.outcome and watch.id not in private for watch in watching),
    )


# A waiter is a gate, which watches works, or a work with blockers: chains that must succeed before it may
# start, and whose results it is given.


def blocked(
    new_works: Sequence[NewWork], continuing: Collection[str], released: bool, succeeded: Collection[str]
) -> tuple[list[NewWork], Watches]:
    """Return the works with those that must wait as blocked, and what each work with blockers watches.

    ``continuing`` are chains whose last work has ended, and whose next is not inserted yet: they have not
    ended. ``succeeded`` are chains that had succeeded when they were last seen, and may be gone.

    Raises ChainNotFound for a blocker that neither exists nor is inserted with them. Not for works that a
    gate has ``released``: their blockers may have been deleted since, which count as cancelled (a recheck
    finds that), and the settlement that opens the gate must not fail for that.
    """
    wanted = {id for new_work in new_works for id in new_work.blockers}
    if not wanted:
        return list(new_works), {}
    seen = dict.fromkeys(wanted.intersection(succeeded), Status.SUCCESS)
    ends = {**seen, **chain_ends(wanted), **dict.fromkeys(wanted.intersection(continuing), Status.PENDING)}
    if not released:
        require_chains(new_works, {new_work.row.id for new_work in new_works}.union(ends))
    watches = {
        new_work.row.id: tuple(Watch(id, True, success_or_open(ends.get(id))) for id in new_work.blockers)
        for new_work in new_works
        if new_work.blockers
    }
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


def success_or_open(status: Status | None) -> str:
    """Return the outcome with which a work or chain is watched: of a success, or none yet.

    What has ended otherwise may be retried in another transaction right now: the recheck decides.
    """
    return str(Status.SUCCESS) if status is Status.SUCCESS else ""


def watched_by_gates(gates: Sequence[GateRequest[Any]], private: Collection[str]) -> Watches:
    """Return what gates watch. Works that are ``private`` to the transaction cannot have run: no query."""
    statuses = statuses_of({id for gate in gates for id in gate.watched if id not in private})
    return {
        gate.id: tuple(Watch(id, outcome=success_or_open(statuses.get(id))) for id in gate.watched)
        for gate in gates
    }


def waiting(new_work: NewWork, watches: Iterable[Watch]) -> NewWork:
    """Return the work as blocked, unless all it watches has succeeded."""
    if all(watch.outcome == Status.SUCCESS for watch in watches):
        return new_work
    return new_work._replace(row=new_work.row._replace(status=Status.BLOCKED))
