"""Rivals in processes of their own, each on its own connection and with its own interpreter.

Threads of one process take turns; processes do not. The test gives the word for each round over pipes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from django_ayework.flow.dependencies import recheck_leftovers
from tests.processes import ROOT

#: The name of an act of ``rival_process``, and what it is given.
Act = Sequence[str]

#: How many microseconds one rival is ahead of the others; this one and that one in turn, round after round.
HEAD_STARTS = (0, 200, 400, 800, 1600)


def race_processes(env: dict[str, str], *rivals: Sequence[Act]) -> list[list[Any]]:
    """Let each rival carry out its acts, all of a round at the same moment; return what each answered.

    An act that is refused answers with the name of the error. In the end waiters are rechecked that were left
    to a worker, as what they watch was locked.
    """
    rounds = {len(acts) for acts in rivals}
    assert len(rounds) == 1, f"expected acts for as many rounds, got {rounds}"
    with ExitStack() as stack:
        processes = [stack.enter_context(Rival.started(env, acts)) for acts in rivals]
        for process in processes:
            assert process.hear() == "ready"
        rounds_ = [round_of(processes, number) for number in range(rounds.pop())]
    recheck_leftovers(len(rounds_) * len(rivals))
    return list(map(list, zip(*rounds_, strict=True)))


def round_of(processes: Sequence[Rival], number: int) -> list[Any]:
    """Give the word; every second round to the last one first."""
    head_start = HEAD_STARTS[number // 2 % len(HEAD_STARTS)]
    first, *others = processes[:: -1 if number % 2 else 1]
    first.say("0")
    for process in others:
        process.say(str(head_start))
    return [process.hear() for process in processes]


class Rival:
    """One process."""

    def __init__(self, process: subprocess.Popen[str], complaints: IO[str]) -> None:
        self._process = process
        self._complaints = complaints

    @classmethod
    @contextmanager
    def started(cls, env: dict[str, str], acts: Sequence[Act]) -> Iterator[Rival]:
        """Start a process with these acts; it is killed at the latest at the end of the block."""
        command = [sys.executable, "-m", "tests.races.rival_process"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with (
            tempfile.TemporaryFile("w+") as complaints,
            subprocess.Popen(command, env=env, cwd=ROOT, stderr=complaints, **pipes) as process,
        ):
            try:
                rival = cls(process, complaints)
                rival.say(json.dumps([list(act) for act in acts]))
                yield rival
            finally:
                process.kill()

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._complaints.seek(0)
            raise AssertionError(f"a rival has ended: {self._complaints.read()[-2000:]}")
        return json.loads(line)
