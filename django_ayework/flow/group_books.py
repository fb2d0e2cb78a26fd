"""What each group gains in one transaction, applied at its end under the groups' locks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from django_ayework.conf import get_settings
from django_ayework.flow.effects import Effects
from django_ayework.flow.events import group_done_is_heard
from django_ayework.flow.payloads import decode_value
from django_ayework.rules.folding import Contribution, GroupValue, fold
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.groups import (
    GroupRow,
    count_in_group,
    delete_emptied,
    insert_groups,
    lock_groups,
    write_groups,
)


class ContributionFailed(Exception):
    """The ``append`` function of a contribution raised; its work's attempt has failed."""

    def __init__(self, work_id: str, cause: BaseException) -> None:
        super().__init__(f"the append function of {work_id} raised: {cause}")
        self.work_id = work_id
        self.cause = cause


@dataclass(slots=True)
class Gain:
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


class GroupBooks:
    """Collects gains; :meth:`close` writes them."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.gains: dict[str, Gain] = defaultdict(Gain)

    def founded(self, root_id: str) -> None:
        """Note that a work which was alone gets company: it is the first, open member of its own group."""
        self.gains[root_id] = Gain(is_new=True, open=1, total=1)

    def founded_empty(self, group_id: str) -> None:
        """Note a new group whose members are all still to join; nobody may, when a rival has queued them."""
        self.gains[group_id] = Gain(is_new=True, may_exist=True)

    def members_joined(self, group_id: str, count: int) -> None:
        """Note new members."""
        self.gains[group_id].open += count
        self.gains[group_id].total += count

    def member_ended(self, group_id: str, dead: bool) -> None:
        """Note that a member has ended."""
        self.gains[group_id].open -= 1
        self.gains[group_id].dead += dead

    def members_succeeded(self, group_id: str, count: int) -> None:
        """Note that members have ended well."""
        self.gains[group_id].open -= count

    def member_reopened(self, group_id: str, was_dead: bool) -> None:
        """Note that an ended member is live again."""
        self.gains[group_id].open += 1
        self.gains[group_id].dead -= was_dead

    def member_deleted(self, group_id: str, status: Status | str) -> None:
        """Note that a member's row is gone; ``status`` is what it had been."""
        gain = self.gains[group_id]
        gain.open -= not is_terminal(status)
        gain.dead -= status == Status.DEAD
        gain.total -= 1
        gain.shrinks = True

    def contributed(self, group_id: str, work_id: str, contributions: Iterable[Contribution]) -> None:
        """Note what a member contributes to the value, in list order; values are encoded texts."""
        gain = self.gains[group_id]
        for contribution in contributions:
            gain.contribute(work_id, contribution)

    def close(self, effects: Effects) -> None:
        """Write every gain, groups locked in id order; announce the groups that have settled.

        A group whose last member was deleted goes with it, and nobody is told.
        """
        if not self.gains:
            return
        for row in self._written():
            if row.done_at != self.now:
                continue
            effects.ended.append(row.id)
            if group_done_is_heard():
                effects.group_done(row.id, decode_value(row.value, get_settings().codec))

    def _written(self) -> Collection[GroupRow]:
        """Write every gain; return the groups as they are now. A plain gain takes one statement."""
        [(id, gain), *others] = self.gains.items()
        if not others and gain.is_plain:
            counted = count_in_group(id, gain.open, gain.total, gain.dead, self.now, *gain.value)
            return [counted] if counted else []
        known = lock_groups(id for id, gain in self.gains.items() if gain.may_exist or not gain.is_new)
        for id in delete_emptied(id for id in known if self.gains[id].shrinks):
            del known[id]
        joined = (id for id, gain in self.gains.items() if gain.is_new and gain.total)
        founded = {id: GroupRow(id) for id in joined if id not in known}
        written = {id: self.applied(row) for id, row in {**known, **founded}.items()}
        insert_groups(row for id, row in written.items() if id in founded)
        write_groups(row for id, row in written.items() if id in known)
        return written.values()

    def applied(self, row: GroupRow) -> GroupRow:
        """Return the group with its gain."""
        gain = self.gains[row.id]
        value = GroupValue(row.value, row.value is not None, row.final)
        for work_id, contribution in gain.contributions:
            try:
                value = fold(value, [contribution])
            except BaseException as error:  # of ``append`` or of a codec
                raise ContributionFailed(work_id, error) from error
        gained = row.gaining(gain.open, gain.total, gain.dead, self.now)
        return gained._replace(value=value.value, final=value.final)
