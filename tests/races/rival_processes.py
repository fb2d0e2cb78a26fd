"""Rivals that act at the same moment, in processes of their own or in threads of this one.

Threads of one process take turns; processes do not. The test gives the word for each round over pipes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import IO, Any

from django.db import transaction

from django_ayework import Dedup, WorkRequest, cancel, complete, dependency, enqueue, retry
from django_ayework.errors import AyeworkError
from django_ayework.flow.gates import recheck_leftovers
from django_ayework.flow.settle import Report
from django_ayework.models import Work
from django_ayework.store.rows import find_row
from tests.processes import ROOT
from tests.races.rivals import kill, race, succeed
from tests.races.works import step

#: The name of an act in ``MAKERS``, and its arguments.
Act = Sequence[str]
#: How many microseconds one rival is ahead of the others; this one and that one in turn, round after round.
HEAD_STARTS = (0, 200, 400, 800, 1600)


class Rivals:
    """Processes that stay from race to race."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._processes: list[Rival] = []

    def close(self) -> None:
        """End all processes."""
        self._processes.clear()
        self._stack.close()

    def race(self, env: dict[str, str], *rivals: Sequence[Act]) -> list[list[Any]]:
        """Let each rival carry out its acts, all of a round at the same moment; return what each answered.

        An act that is refused answers with the name of the error. In the end waiters are rechecked that were
        left to a worker, as what they watch was locked.
        """
        rounds = {len(acts) for acts in rivals}
        assert len(rounds) == 1, f"expected acts for as many rounds, got {rounds}"
        try:
            while len(self._processes) < len(rivals):
                self._processes.append(self._stack.enter_context(Rival.started(env)))
            processes = self._processes[: len(rivals)]
            for process, acts in zip(processes, rivals, strict=True):
                process.write(json.dumps([list(act) for act in acts]))
            for process in processes:
                assert process.read() == "ready"
            rounds_ = [round_of(processes, number) for number in range(rounds.pop())]
        except BaseException:
            self.close()
            raise
        recheck_leftovers(len(rounds_) * len(rivals))
        return list(map(list, zip(*rounds_, strict=True)))


def race_threads(*rivals: Sequence[Act]) -> list[list[Any]]:
    """Do the same in threads of this process."""
    made = [[prepared(*act) for act in acts] for acts in rivals]
    answers: list[list[Any]] = [[] for _ in rivals]

    def rival(side: int) -> Callable[[int], None]:
        return lambda number: answers[side].append(made[side][number]())

    race(len(rivals[0]), *map(rival, range(len(rivals))))
    return answers


def round_of(processes: Sequence[Rival], number: int) -> list[Any]:
    """Give the word; every second round to the last one first."""
    head_start = HEAD_STARTS[number // 2 % len(HEAD_STARTS)]
    first, *others = processes[:: -1 if number % 2 else 1]
    first.write("0")
    for process in others:
        process.write(str(head_start))
    return [process.read() for process in processes]


class Rival:
    """One process."""

    def __init__(self, process: subprocess.Popen[str], complaints: IO[str]) -> None:
        self._process = process
        self._complaints = complaints

    @classmethod
    @contextmanager
    def started(cls, env: dict[str, str]) -> Iterator[Rival]:
        """Start a process; it is killed at the latest at the end of the block."""
        command = [sys.executable, "-m", "tests.races.rival_process"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with (
            tempfile.TemporaryFile("w+") as complaints,
            subprocess.Popen(command, env=env, cwd=ROOT, stderr=complaints, **pipes) as process,
        ):
            try:
                yield cls(process, complaints)
            finally:
                process.kill()

    def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._complaints.seek(0)
            raise AssertionError(f"a rival has ended: {self._complaints.read()[-2000:]}")
        return json.loads(line)


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
