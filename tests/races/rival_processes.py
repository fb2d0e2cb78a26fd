"""Rivals that act at the same moment, in processes of their own or in threads of this one.

Threads of one process take turns; processes do not. The test gives the word for each round over pipes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from django.db import transaction

from django_ayework import Dedup, WorkRequest, cancel, complete, dependency, enqueue, retry
from django_ayework.errors import AyeworkError
from django_ayework.flow.gates import recheck_leftovers
from django_ayework.flow.settle import Report
from django_ayework.models import Work
from django_ayework.store.rows import find_row
from tests.races.rival_process import serve
from tests.races.rivals import each, kill, race, succeed
from tests.races.works import step

SPAWN = get_context("spawn")
#: The name of an act in ``MAKERS``, and its arguments.
Act = Sequence[str]
#: How many microseconds one rival is ahead of the others; this one and that one in turn, round after round.
HEAD_STARTS = (0, 200, 400, 800, 1600)


class Rivals:
    """Processes that stay from race to race."""

    def __init__(self) -> None:
        self._rivals: list[tuple[Connection, BaseProcess]] = []

    def close(self) -> None:
        """End all processes."""
        for _, process in self._rivals:
            process.kill()
            process.join()
        self._rivals.clear()

    def race(self, env: dict[str, str], *rivals: Sequence[Act]) -> list[list[Any]]:
        """Let each rival carry out its acts, all of a round at the same moment; return what each answered.

        An act that is refused answers with the name of the error. In the end waiters are rechecked that were
        left to a worker, as what they watch was locked.
        """
        [rounds] = {len(acts) for acts in rivals}
        try:
            while len(self._rivals) < len(rivals):
                self._rivals.append(started(env))
            pipes = [pipe for pipe, _ in self._rivals[: len(rivals)]]
            for pipe, acts in zip(pipes, rivals, strict=True):
                pipe.send(acts)
            assert [pipe.recv() for pipe in pipes] == ["ready"] * len(pipes)
            answers = [round_of(pipes, number) for number in range(rounds)]
        except BaseException:
            self.close()
            raise
        recheck_leftovers(rounds * len(rivals))
        return list(map(list, zip(*answers, strict=True)))


def started(env: dict[str, str]) -> tuple[Connection, BaseProcess]:
    """Start a process."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=serve, args=(env, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def round_of(pipes: Sequence[Connection], number: int) -> list[Any]:
    """Give the word; every second round to the last one first."""
    head_start = HEAD_STARTS[number // 2 % len(HEAD_STARTS)]
    first, *others = pipes[:: -1 if number % 2 else 1]
    first.send(0)
    for pipe in others:
        pipe.send(head_start)
    return [pipe.recv() for pipe in pipes]


def race_threads(*rivals: Sequence[Act]) -> list[list[Any]]:
    """Do the same in threads of this process."""
    made = [[prepared(*act) for act in acts] for acts in rivals]
    answers: list[list[Any]] = [[] for _ in rivals]

    def rival(side: int) -> Callable[[int], None]:
        return each(lambda act: answers[side].append(act()), made[side])

    race(len(rivals[0]), *map(rival, range(len(rivals))))
    return answers


def prepared(name: str, *ids: str) -> Callable[[], Any]:
    """Return the act of this name: claimed rows are read, requests built. A refusal answers with its name."""
    act = MAKERS[name](*ids)

    def answered() -> Any:
        try:
            return act()
        except AyeworkError as refusal:
            return type(refusal).__name__

    return answered


def settling(settle: Callable[..., Report], ids: tuple[str, ...]) -> Callable[[], list[str]]:
    """Settle claimed works; return those that moved."""
    rows = [find_row(id) for id in ids]
    return lambda: sorted(settle(*rows).moved)


def queueing(request: WorkRequest[Any, Any], slowly: bool = False, **options: Any) -> Callable[[], Any]:
    """Queue a work; return its id, and whether it is another's. A slow one keeps its transaction open."""

    def act() -> tuple[str, bool]:
        with transaction.atomic() if slowly else nullcontext():
            handle = enqueue(request, **options)
            Work.objects.filter(id=handle.id).exists() if slowly else None
        return handle.id, handle.deduplicated

    return act


def acting(function: Callable[[str], object], id: str) -> Callable[[], str]:
    """Act by hand; return the id."""
    return lambda: (function(id), id)[1]


MAKERS: dict[str, Callable[..., Callable[[], Any]]] = {
    "succeed": lambda *ids: settling(succeed, ids),
    "kill": lambda *ids: settling(kill, ids),
    "cancel": lambda id: acting(cancel, id),
    "complete": lambda id: acting(complete, id),
    "retry": lambda id: acting(retry, id),
    "queue once": lambda key: queueing(step(), dedup=Dedup(key)),
    "queue blocked": lambda *ids: queueing(step(), blockers=ids),
    "queue a gate": lambda *ids: queueing(dependency(ids, [step()])),
    "queue a gate slowly": lambda *ids: queueing(dependency(ids, [step()]), slowly=True),
}
