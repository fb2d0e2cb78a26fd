"""One word for one thing: words that were replaced do not come back, in names or in prose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.processes import ROOT

#: Words that the glossary has another word for. A name is split into its words first.
REPLACED = """
barren birth births born bury buried crew deaf doomed draft drafts ear ears guest guests holdings keeper
keepers ledger likeness loan mould moulds mourn news outbox rationed rations seam seams stray strays telling
trial verdict verdicts vitals whoever whom
"""
BANNED = frozenset(REPLACED.split())
#: Pairs of words that were replaced.
PAIRS = frozenset({"second look", "look around", "stand ins", "told apart"})
#: Pages where a word has its ordinary meaning.
ALLOWED = {
    "docs/explanation/reliability.md": frozenset({"ledger"}),
    "docs/tutorial/7-tests.md": frozenset({"outbox"}),  # that of Django's mail
}
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def files() -> Iterator[Path]:
    """Return the package's sources and the pages of the documentation."""
    yield from (ROOT / "django_ayework").rglob("*.py")
    yield from (ROOT / "docs").rglob("*.md")
    yield from ROOT.glob("*.md")


def banned_in(path: Path) -> list[str]:
    """Return the banned words of a file, each with its line."""
    name = path.relative_to(ROOT).as_posix()
    banned = BANNED - ALLOWED.get(name, frozenset())
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = [word.lower() for word in WORD.findall(line)]
        pairs = {" ".join(pair) for pair in pairwise(words)}
        found += [f"{name}:{number}: {word}" for word in banned.intersection(words) | (PAIRS & pairs)]
    return found


def test_the_words_that_were_replaced_do_not_come_back() -> None:
    assert [line for path in files() for line in banned_in(path)] == []


def test_names_are_split_into_their_words() -> None:
    giveBirth_second_look = banned_in(Path(__file__))  # both ways to write a name
    assert {line.split(": ")[1] for line in giveBirth_second_look} >= {"birth", "second look"}
