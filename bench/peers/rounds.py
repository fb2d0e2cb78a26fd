"""Rounds in which everyone has a turn, so that a noisy moment hits all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.peers.contestant import Contestant, Setting
from bench.peers.crew import Crew
from bench.peers.phases import Phase
from bench.report.readings import Reading


@dataclass
class Turn:
    """A contestant in one of its settings, and what its turns of a phase have given."""

    contestant: Contestant
    setting: Setting
    figures: list[Mapping[str, float]] = field(default_factory=list)
    reason: str = ""

    def readings(self, phase: str) -> list[Reading]:
        """Return one reading per figure, or one without any that says why."""
        about = (phase, self.contestant.name, self.contestant.database, self.setting.title)
        if not self.figures:
            return [Reading(*about, figure="", reason=self.reason)]
        names = list(self.figures[0])
        return [
            Reading(*about, name, tuple(one[name] for one in self.figures if name in one), self.reason)
            for name in names
        ]


@contextmanager
def crews(contestants: Sequence[Contestant]) -> Iterator[dict[Contestant, Crew]]:
    """Yield a crew for each contestant; their processes, databases and files are gone afterwards."""
    with TemporaryDirectory(prefix="ayework-bench-") as folder, ExitStack() as exits:
        yield {
            contestant: exits.enter_context(Crew(contestant, Path(folder) / f"{number}-{contestant.driver}"))
            for number, contestant in enumerate(contestants)
        }


def measure(phase: Phase, crews: Mapping[Contestant, Crew], rounds: int, count: int) -> list[Reading]:
    """Let everyone who is in a phase have so many turns; return what was read. Failures stop nobody else."""
    turns = [
        Turn(contestant, setting, reason=contestant.obstacle())
        for contestant in crews
        for setting in contestant.settings.get(phase.settings, ())
    ]
    ready = [turn for turn in turns if not turn.reason]
    for number in range(rounds):
        # Backwards every other time: who comes late in a round of growing noise comes early in the next.
        for turn in ready if number % 2 == 0 else reversed(ready):
            if number and phase.peers_once and turn.contestant.is_peer:
                continue
            take(turn, phase, crews[turn.contestant], count)
            tell(turn, phase, number)
    return [reading for turn in turns for reading in turn.readings(phase.name)]


def take(turn: Turn, phase: Phase, crew: Crew, count: int) -> None:
    """Take a turn, and write down what it gave."""
    try:
        turn.figures.append(phase.measure(crew, turn.setting, count))
    except Exception as error:
        turn.reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]


def tell(turn: Turn, phase: Phase, number: int) -> None:
    """Say what a turn gave."""
    given = f"failed: {turn.reason}" if turn.reason else ""
    if turn.figures and not turn.reason:
        given = ", ".join(f"{value:,.2f} {name}" for name, value in turn.figures[-1].items())
    title = f"{turn.contestant.title} {turn.setting.title}".strip()
    print(f"  {phase.name:<13} round {number + 1}   {title:<48} {given}", flush=True)
