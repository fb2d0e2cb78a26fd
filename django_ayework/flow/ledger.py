"""The books of one transaction: what ended, what was born, what each group gains; closed in a fixed order.

The order keeps locks and races simple: works first, then waiters wave by wave (each in id order), then
groups in id order. Groups come last because every settlement of a busy group meets there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from django_ayework.define.events import Kind
from django_ayework.flow.births import Birth
from django_ayework.flow.blockers import Watches, blocked, watched_by_gates
from django_ayework.flow.drafts import Drafts
from django_ayework.flow.effects import Effects
from django_ayework.flow.events import group_done_is_heard, is_heard
from django_ayework.flow.gate_payload import promised_ids
from django_ayework.flow.group_books import GroupBooks
from django_ayework.flow.states import readable_result
from django_ayework.flow.taken import leave_taken, one_per_id
from django_ayework.rules.conditions import Condition, Decision, condition_to_plain, decide
from django_ayework.rules.states import Status
from django_ayework.store.attempts import AttemptRow
from django_ayework.store.inserts import insert_works
from django_ayework.store.rows import WorkRow
from django_ayework.store.waiters import WaiterRow, Watch, insert_waiters

#: What a work with blockers waits for, and what becomes of it when that cannot happen.
OF_BLOCKERS: tuple[Condition, str] = ("all-success", "dead")


class Ledger:
    """Collects what follows from a transaction's transitions."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.effects = Effects(now)
        self.groups = GroupBooks(now)
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
        self.outputs: list[Birth] = []

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
        elif group_done_is_heard():
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

    def bear(self, births: Sequence[Birth], drafts: Drafts | None = None, promised: bool = False) -> set[str]:
        """Insert works; return the ids that existed already, which are left as they are.

        Raises ChainNotFound for a blocker that does not exist, unless a gate has ``promised`` the works.
        """
        taken = set() if drafts is None else self.bear_drafts(drafts)
        others = () if drafts is None else set(drafts.ids) - taken
        births = one_per_id(births, promised)
        if not births:
            return taken
        births, watches = blocked(births, self.continuing, promised)
        known = insert_works([birth.row for birth in births])
        fresh = [birth for birth in births if birth.row.id not in known]
        leave_taken([birth.row for birth in births if birth.row.id in known], promised)
        self.count_members(birth.row.group_id for birth in fresh)
        self.announce_births([birth.row for birth in fresh])
        self.insert_waiters(fresh, watches, others)
        return taken | known

    def bear_drafts(self, drafts: Drafts) -> set[str]:
        """Insert works that need nothing but their rows; return the ids that existed already."""
        taken = insert_works(drafts, drafts.samples)
        leave_taken([row for row in drafts if row.id in taken] if taken else ())
        if drafts.group_id is not None:
            self.groups.members_joined(drafts.group_id, len(drafts) - len(taken))
        if taken or any(is_heard(Kind.QUEUED, row.type) for row in drafts.samples):
            self.announce_births([row for row in drafts if row.id not in taken])
        else:
            self.announce_births(drafts.samples)
            self.effects.due_works += len(drafts) - len(drafts.samples)
        return taken

    def count_members(self, groups: Iterable[str | None]) -> None:
        """Count new works in their groups."""
        for group_id, members in Counter(groups).items():
            if group_id is not None:
                self.groups.members_joined(group_id, members)

    def announce_births(self, rows: Sequence[WorkRow]) -> None:
        """Announce new works to workers, and to whoever hears of each; to workers one of a type will do."""
        for row in rows:
            self.effects.awaits_worker(row)
        heard = {type for type in {row.type for row in rows} if is_heard(Kind.QUEUED, type)}
        for row in rows if heard else ():
            self.effects.happened(Kind.QUEUED, row)

    def insert_waiters(self, births: Sequence[Birth], watches: Watches, others: Collection[str]) -> None:
        """Insert what new gates and new works with blockers wait for.

        What is born here (``others`` too), or promised by a gate born here, nobody else can settle before we
        commit. Anything else that has not succeeded may be settling right now and miss our edges, so such a
        waiter is rechecked after the commit. One whose condition is met already is decided with this
        transaction; nobody else can see the others, so they need not even be read.
        """
        gates = [birth.gate for birth in births if birth.gate is not None]
        private = {birth.row.id for birth in births}.union(promised_ids(gates), others)
        watched = watched_by_gates(gates, private)
        watched.update({birth.row.id: watches[birth.row.id] for birth in births if birth.blockers})
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
