"""The unit of work: what one transaction ended, inserted and changed in groups, flushed in a fixed order."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django_ayework.conf import get_settings
from django_ayework.define.handles import Kind
from django_ayework.flow.blockers import Watches, blocked, watched_by_gates
from django_ayework.flow.effects import Effects
from django_ayework.flow.events import group_done_has_receivers, has_receivers
from django_ayework.flow.gates import promised_ids
from django_ayework.flow.identity import leave_taken, one_per_id
from django_ayework.flow.new_works import NewWork
from django_ayework.flow.payloads import decode_value
from django_ayework.flow.row_templates import Drafts
from django_ayework.flow.states import readable_result
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
from django_ayework.store.attempts import AttemptRow
from django_ayework.store.dependencies import WaiterRow, Watch, insert_waiters
from django_ayework.store.groups import (
    GroupRow,
    count_in_group,
    delete_emptied,
    insert_groups,
    lock_groups,
    write_groups,
)
from django_ayework.store.insert import insert_works
from django_ayework.store.rows import WorkRow

# --- group books ---
# What each group gains in one transaction, applied at its end under the groups' locks.


class ContributionFailed(Exception):
    """The ``append`` function of a contribution raised; its work's attempt has failed."""

    def __init__(self, work_id: str, cause: BaseException) -> None:
        super().__init__(f"the append function of {work_id} raised: {cause}")
        self.work_id = work_id
        self.cause = cause


@dataclass(slots=True)
class GroupDelta:
    """What one group gains."""

    is_new: bool = False
    may_exist: bool = False  # somebody else may have made the new group just now
    shrinks: bool = False  # members are deleted, perhaps all of them
    open: int = 0
    total: int = 0
    dead: int = 0
    contributions: list[tuple[str, Contribution]] = field(default_factory=list)

    def contribute(self, work_id: str, contribution: Contribution) -> None:
        """Add a contribution, instead of the one before if both do nothing but replace the value."""
        if contribution.append is None and self.contributions:
            _, before = self.contributions[-1]
            if before.append is None and not before.final:
                self.contributions.pop()
        self.contributions.append((work_id, contribution))

    @property
    def is_plain(self) -> bool:
        """Whether members of a group that is there have come or ended, with one value to replace its own."""
        replaces = all(contribution.append is None for _, contribution in self.contributions)
        return replaces and not (self.is_new or self.shrinks)

    @property
    def value(self) -> tuple[str | None, bool]:
        """The value of a plain gain, if it has one, and whether that is final; nothing passes a final one."""
        for _, contribution in self.contributions:
            return contribution.value, contribution.final
        return None, False


class GroupChanges:
    """Collects gains; :meth:`close` writes them."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.deltas: dict[str, GroupDelta] = defaultdict(GroupDelta)

    def founded(self, root_id: str) -> None:
        """Note that a work which was alone gets company: it is the first, open member of its own group."""
        self.deltas[root_id] = GroupDelta(is_new=True, open=1, total=1)

    def founded_empty(self, group_id: str) -> None:
        """Note a new group whose members are all still to join; nobody may, when a rival has queued them."""
        self.deltas[group_id] = GroupDelta(is_new=True, may_exist=True)

    def members_joined(self, group_id: str, count: int) -> None:
        """Note new members."""
        self.deltas[group_id].open += count
        self.deltas[group_id].total += count

    def member_ended(self, group_id: str, dead: bool) -> None:
        """Note that a member has ended."""
        self.deltas[group_id].open -= 1
        self.deltas[group_id].dead += dead

    def members_succeeded(self, group_id: str, count: int) -> None:
        """Note that members have ended well."""
        self.deltas[group_id].open -= count

    def member_reopened(self, group_id: str, was_dead: bool) -> None:
        """Note that an ended member is live again."""
        self.deltas[group_id].open += 1
        self.deltas[group_id].dead -= was_dead

    def member_deleted(self, group_id: str, status: Status | str) -> None:
        """Note that a member's row is gone; ``status`` is what it had been."""
        delta = self.deltas[group_id]
        delta.open -= not is_terminal(status)
        delta.dead -= status == Status.DEAD
        delta.total -= 1
        delta.shrinks = True

    def contributed(self, group_id: str, work_id: str, contributions: Iterable[Contribution]) -> None:
        """Note what a member contributes to the value, in list order; values are encoded texts."""
        delta = self.deltas[group_id]
        for contribution in contributions:
            delta.contribute(work_id, contribution)

    def close(self, effects: Effects) -> None:
        """Write every gain, groups locked in id order; announce the groups that have settled.

        A group whose last member was deleted goes with it, and nobody is told.
        """
        if not self.deltas:
            return
        for row in self._written():
            if row.done_at != self.now:
                continue
            effects.ended.append(row.id)
            if group_done_has_receivers():
                effects.group_done(row.id, decode_value(row.value, get_settings().codec))

    def _written(self) -> Collection[GroupRow]:
        """Write every gain; return the groups as they are now. A plain gain takes one statement."""
        [(id, delta), *others] = self.deltas.items()
        if not others and delta.is_plain:
            counted = count_in_group(id, delta.open, delta.total, delta.dead, self.now, *delta.value)
            return [counted] if counted else []
        known = lock_groups(id for id, delta in self.deltas.items() if delta.may_exist or not delta.is_new)
        for id in delete_emptied(id for id in known if self.deltas[id].shrinks):
            del known[id]
        joined = (id for id, delta in self.deltas.items() if delta.is_new and delta.total)
        founded = {id: GroupRow(id) for id in joined if id not in known}
        written = {id: self.applied(row) for id, row in {**known, **founded}.items()}
        insert_groups(row for id, row in written.items() if id in founded)
        write_groups(row for id, row in written.items() if id in known)
        return written.values()

    def applied(self, row: GroupRow) -> GroupRow:
        """Return the group with its gain."""
        delta = self.deltas[row.id]
        value = GroupValue(row.value, row.value is not None, row.final)
        for work_id, contribution in delta.contributions:
            try:
                value = fold(value, [contribution])
            except BaseException as error:  # of ``append`` or of a codec
                raise ContributionFailed(work_id, error) from error
        gained = row.adding(delta.open, delta.total, delta.dead, self.now)
        return gained._replace(value=value.value, final=value.final)


# --- ledger ---
# The books of one transaction: what ended, what was born, what each group gains; closed in a fixed order.
#
# The order keeps locks and races simple: works first, then waiters wave by wave (each in id order), then
# groups in id order. Groups come last because every settlement of a busy group meets there.

#: What a work with blockers waits for, and what becomes of it when that cannot happen.
OF_BLOCKERS: tuple[Condition, str] = ("all-success", "dead")


class UnitOfWork:
    """Collects what follows from a transaction's transitions."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.effects = Effects(now)
        self.groups = GroupChanges(now)
        #: How watched works ended in this wave; None undoes an end.
        self.outcomes: dict[str, Status | None] = {}
        #: The same of chains, by the id of the first work.
        self.chain_outcomes: dict[str, Status | None] = {}
        #: Chains that go on in this transaction, though their next work may not be born yet.
        self.continuing: set[str] = set()
        #: Waiters to decide although nothing they watch has news.
        self.undecided: set[str] = set()
        #: Waiters that watch works of other transactions: to be rechecked after commit.
        self.rechecks: list[str] = []
        #: Waiters born in this transaction.
        self.waiters: set[str] = set()
        #: Works whose watchers may not have been told: those are looked for after commit.
        self.strays: set[str] = set()
        self.attempts: list[AttemptRow] = []
        #: Works that settled works have output, queued together when the books close.
        self.outputs: list[NewWork] = []

    def ended(self, row: WorkRow, status: Status, continues: bool = False) -> None:
        """Note that a work has reached a terminal status; ``row`` is how it now is, if anybody is to be told.

        Its chain has ended with it, unless it ``continues``.

        One that was born in this very transaction could not be locked by anybody who has begun to watch it.
        """
        self.outcomes[row.id] = status
        self.effects.ended.append(row.id)
        if not continues:
            self.chain_outcomes[row.chain] = status
            if row.chain != row.id:
                self.effects.ended.append(row.chain)
        if row.id in self.waiters:
            self.strays.add(row.id)
        if row.group_id is not None:
            self.groups.member_ended(row.group_id, status is Status.DEAD)
        elif group_done_has_receivers():
            self.effects.group_done(row.id, readable_result(row))

    def all_succeeded(self, rows: Sequence[WorkRow]) -> None:
        """Note that works have succeeded, and their chains; nobody is told of each.

        It is ended() for thousands at a time, as most works end. They have run: none was born right here.
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
                self.groups.members_succeeded(group_id, number)

    def reopened(self, row: WorkRow, was_dead: bool) -> None:
        """Note that an ended work is live again."""
        self.outcomes[row.id] = None
        self.chain_outcomes[row.chain] = None
        if row.group_id is not None:
            self.groups.member_reopened(row.group_id, was_dead)

    def insert(
        self, new_works: Sequence[NewWork], drafts: Drafts | None = None, promised: bool = False
    ) -> set[str]:
        """Insert works; return the ids that existed already, which are left as they are.

        Raises ChainNotFound for a blocker that does not exist, unless a gate has ``promised`` the works.
        """
        taken = set() if drafts is None else self.insert_from_templates(drafts)
        others = () if drafts is None else set(drafts.ids) - taken
        new_works = one_per_id(new_works, promised)
        if not new_works:
            return taken
        new_works, watches = blocked(new_works, self.continuing, promised)
        known = insert_works([new_work.row for new_work in new_works])
        fresh = [new_work for new_work in new_works if new_work.row.id not in known]
        leave_taken([new_work.row for new_work in new_works if new_work.row.id in known], promised)
        self.count_members(new_work.row.group_id for new_work in fresh)
        self.announce_new_works([new_work.row for new_work in fresh])
        self.insert_waiters(fresh, watches, others)
        return taken | known

    def insert_from_templates(self, drafts: Drafts) -> set[str]:
        """Insert works that need nothing but their rows; return the ids that existed already."""
        taken = insert_works(drafts, drafts.samples)
        leave_taken([row for row in drafts if row.id in taken] if taken else ())
        if drafts.group_id is not None:
            self.groups.members_joined(drafts.group_id, len(drafts) - len(taken))
        if taken or any(has_receivers(Kind.QUEUED, row.type) for row in drafts.samples):
            self.announce_new_works([row for row in drafts if row.id not in taken])
        else:
            self.announce_new_works(drafts.samples)
            self.effects.due_works += len(drafts) - len(drafts.samples)
        return taken

    def count_members(self, groups: Iterable[str | None]) -> None:
        """Count new works in their groups."""
        for group_id, members in Counter(groups).items():
            if group_id is not None:
                self.groups.members_joined(group_id, members)

    def announce_new_works(self, rows: Sequence[WorkRow]) -> None:
        """Announce new works to workers, and to whoever hears of each; to workers one of a type will do."""
        for row in rows:
            self.effects.awaits_worker(row)
        heard = {type for type in {row.type for row in rows} if has_receivers(Kind.QUEUED, type)}
        for row in rows if heard else ():
            self.effects.happened(Kind.QUEUED, row)

    def insert_waiters(self, new_works: Sequence[NewWork], watches: Watches, others: Collection[str]) -> None:
        """Insert what new gates and new works with blockers wait for.

        What is born here (``others`` too), or promised by a gate born here, nobody else can settle before we
        commit. Anything else that has not succeeded may be settling right now and miss our edges, so such a
        waiter is rechecked after the commit. One whose condition is met already is decided with this
        transaction; nobody else can see the others, so they need not even be read.
        """
        gates = [new_work.gate for new_work in new_works if new_work.gate is not None]
        private = {new_work.row.id for new_work in new_works}.union(promised_ids(gates), others)
        watched = watched_by_gates(gates, private)
        watched.update(
            {new_work.row.id: watches[new_work.row.id] for new_work in new_works if new_work.blockers}
        )
        if not watched:
            return
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
    """Return a new waiter; one that watches what others could be settling is to be looked at again."""
    return WaiterRow(
        work_id=id,
        condition=json.dumps(condition_to_plain(condition)),
        on_unmet=on_unmet,
        total=len(watching),
        succeeded=sum(watch.outcome == Status.SUCCESS for watch in watching),
        missed=0,
        recheck=any(not watch.outcome and watch.id not in private for watch in watching),
    )
