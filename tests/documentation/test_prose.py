"""Prose: the rules of ``docs/style.md`` that can be checked by words, and one word for one thing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs import FENCE
from tests.documentation.pages import PAGES, ROOT, names, section, table

#: The words of a sentence, at most, which the style page says. Code counts as one word.
[MOST_WORDS] = map(int, re.findall(r"at most (\d+) words", section("style.md", "Sentences")))
#: The words of each rule, as the style page lists them.
WORDS = {row[0]: names(row[1]) for row in table("style.md", "Words to leave out")}
LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
#: A heading that is one word with hyphens is the code of a message.
HEADING = re.compile(r"#+ +(?![a-z]+(?:-[a-z]+)+$)(.+)")
ITEM = re.compile(r" *(?:[-*]|(\d+)\.) +")
END = re.compile(r"(?<=[.!?])[*_)\"”]*\s+(?=[*_(\"“\[]*[^a-z\s])")
WORD = re.compile(r"[\w'’.,-]*\w")
#: "What is ready goes back." Questions, and entries such as "What to expect: a link", are allowed.
CLAUSE_FIRST = re.compile(r"[*_]*(?:What|Whatever|Who|Whoever)\b[^:]* \w+[^:]*\.[*_]*$")
WHO = r"\b(?:what|who|whatever)\b"
STACKED = re.compile(rf"{WHO}[^,;:]*(?<!\band )(?<!\bor ){WHO}", re.IGNORECASE)
CLEFT = re.compile(r"\bit is (?:the \w+|what|they|only \w+|not \w+) (?:that|who|which)\b", re.IGNORECASE)
VERBS = "do|does|did|is|are|was|were|has|have|can|will"
SO_DOES = re.compile(rf"(?:^|[,;:] |\band )(?:so|neither|nor) (?:{VERBS})\b", re.IGNORECASE)


class Finding(NamedTuple):
    rule: str
    sentence: str


def has_words(rule: str) -> Callable[[str], object]:
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, WORDS[rule]))})\b", re.IGNORECASE).search


#: The rules by their names on the style page.
RULES: dict[str, Callable[[str], object]] = {
    "length": lambda sentence: len(WORD.findall(sentence)) > MOST_WORDS,
    "clause first": CLAUSE_FIRST.match,
    "stacked clauses": lambda sentence: STACKED.search(sentence) or CLEFT.search(sentence),
    "filler": has_words("filler"),
    "figure of speech": has_words("figure of speech"),
    "fragment": lambda sentence: SO_DOES.search(sentence) or has_words("fragment")(sentence),
}


def blocks(text: str) -> Iterator[str]:
    """Return the headings, paragraphs, items and cells of a page, each on one line; code is left out."""
    text = CODE.sub("CODE", COMMENT.sub("", FENCE.sub("\n", text)))
    collected: list[str] = []
    is_list = False
    for line in [*LINK.sub(r"\1", text).splitlines(), ""]:
        item = ITEM.match(line)
        # Only an item numbered 1 may follow a line of a paragraph.
        starts = item is not None and (not collected or is_list or item[1] in (None, "1"))
        ends = starts or not line.strip() or line.lstrip().startswith(("#", "|", ">", "```"))
        if ends and collected:
            yield " ".join(collected)
            collected = []
        if heading := HEADING.match(line):
            yield heading[1]
        elif line.lstrip().startswith("|"):
            yield from (cell.strip() for cell in line.strip().strip("|").split("|"))
        elif line.strip() and not line.lstrip().startswith(("#", "```")):
            is_list = starts or (bool(collected) and is_list)
            collected.append((line[item.end() :] if item and starts else line).strip())


def findings(text: str) -> Iterator[Finding]:
    """Return the sentences of a page that break a rule."""
    for block in blocks(text):
        for sentence in END.split(block):
            yield from (Finding(rule, sentence) for rule, breaks in RULES.items() if breaks(sentence))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sentences_keep_to_the_rules_of_style(path: Path) -> None:
    assert list(findings(path.read_text())) == []


@pytest.mark.parametrize("rule", RULES)
def test_the_style_page_has_an_example_of_each_rule(rule: str) -> None:
    rows = {row[0]: row[1:] for row in table("style.md", "Sentences")}
    bad, good = (names(cell)[0] for cell in rows[rule])
    assert rule in {finding.rule for finding in findings(bad)}
    assert list(findings(good)) == []


def test_each_word_to_leave_out_is_found() -> None:
    assert len(WORDS["filler"]) > 8 and len(WORDS["figure of speech"]) > 20 and len(WORDS["fragment"]) > 2
    for rule, words in WORDS.items():
        assert [word for word in words if rule not in {found.rule for found in findings(f"It {word}.")}] == []


@pytest.mark.parametrize("text", [
    "What is the status of a dead work?", "What to do", "`simply` is code.", "A work does so once.",
    "What happens when a work fails: [failures](guides/failures-and-retries.md).",
    "The overview says what is wrong and what to do.", "```text\nOf course.\n```",
    "The command prints what it did, and returns what it found.",
])  # fmt: skip
def test_plain_sentences_are_let_through(text: str) -> None:
    assert list(findings(text)) == []


def test_sentences_of_items_cells_and_paragraphs_are_separate() -> None:
    text = "# Zero\n\nOne, see\n3. Two.\n\n- three\n- four\n\n| five | six |\n|---|---|\n"
    assert list(blocks(text)) == ["Zero", "One, see 3. Two.", "three", "four", "five", "six", "---", "---"]
    headings = "## Once across the fleet\n\n### type-floods\n"  # the second is the code of a message
    assert [rule for rule, _ in findings(headings)] == ["figure of speech"]


# --- words that were replaced ----------------------------------------------------------------------------

#: Words that the glossary has another word for. A name is split into its words first.
REPLACED = """
barren birth births born bury buried crew deaf doomed draft drafts ear ears guest guests holdings keeper
keepers ledger likeness loan mould moulds mourn news outbox rationed rations seam seams stray strays telling
trial verdict verdicts vitals whoever whom
"""
PAIRS = {"second look", "look around", "stand ins", "told apart"}
#: Pages where a word has its ordinary meaning; the outbox is that of Django's mail.
ALLOWED = {"docs/explanation/reliability.md": {"ledger"}, "docs/tutorial/7-tests.md": {"outbox"}}


def replaced_in(path: Path) -> list[str]:
    """Return the replaced words of a file, each with its line."""
    name = path.relative_to(ROOT).as_posix()
    banned = set(REPLACED.split()) - ALLOWED.get(name, set())
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", line)]
        pairs = {" ".join(pair) for pair in pairwise(words)}
        found += [f"{name}:{number}: {word}" for word in banned.intersection(words) | (PAIRS & pairs)]
    return found


def test_the_words_that_were_replaced_do_not_come_back() -> None:
    files = [*(ROOT / "django_ayework").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    assert [line for path in files for line in replaced_in(path)] == []


def test_names_are_split_into_their_words() -> None:
    giveBirth_second_look = replaced_in(Path(__file__))  # both ways to write a name
    assert {line.split(": ")[1] for line in giveBirth_second_look} >= {"birth", "second look"}
