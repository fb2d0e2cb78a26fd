"""How many database connections workers use."""

from __future__ import annotations

from dataclasses import dataclass

#: What the engine's own threads in one process are for; each has one connection, outside of any pool. At rest
#: those that claim and settle keep theirs.
OWN = ("claiming", "settling", "keeping leases", "maintenance")
#: And that of the thread that fires schedules, if there is one.
SCHEDULING = "firing schedules"
#: And that of the thread that calls the hook, if the project has one.
UNHANDLED_GROUPS = "UNHANDLED_GROUP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most connections that processes of one command line have open to the queue's database.

    Handlers have one each while they run: plain ones in their thread, async ones in a thread of their own.
    Neither the event loop, nor the main thread, nor a supervisor has any. A process that is replaced keeps
    its connections until what it runs has ended, so ``replaced`` processes may be there twice for a while.
    ``wakeups`` are what those take connections for.

    >>> budget = Budget(concurrency=8, processes=4, replaced=True)
    >>> budget.per_process, budget.usual, budget.most
    (13, 52, 104)
    """

    concurrency: int
    processes: int = 1
    replaced: bool = False
    scheduler: bool = True
    unhandled_groups: bool = False
    wakeups: tuple[str, ...] = ()

    @property
    def own(self) -> tuple[str, ...]:
        """What the engine's own threads in each process are for."""
        scheduling = [SCHEDULING] if self.scheduler else []
        hooks = [UNHANDLED_GROUPS] if self.unhandled_groups else []
        return (*OWN, *scheduling, *hooks, *self.wakeups)

    @property
    def per_process(self) -> int:
        """How many one process has."""
        return self.concurrency + len(self.own)

    @property
    def usual(self) -> int:
        """How many all processes have, while none is being replaced."""
        return self.per_process * self.processes

    @property
    def most(self) -> int:
        """How many there may be for a moment."""
        return self.usual * 2 if self.replaced and self.processes > 1 else self.usual
