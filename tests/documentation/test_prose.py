"""Prose: the rules of ``docs/style.md`` that can be checked by words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.docs import FENCE
from tests.documentation.pages import PAGES, ROOT, names, section, table

#: The words of a sentence, at most. Code counts as one word.
MOST_WORDS = 32
#: The words of each rule, as the style page lists them.
FILLERS = (
    "of course",
    "simply",
    "just",
    "easily",
    "obviously",
    "basically",
    "merely",
    "in fact",
    "very moment",
)
FIGURES = (
    *(
        "fleet",
        "flood",
        "floods",
        "crowd out",
        "told of",
        "spared",
        "hears",
        "hears of",
        "learns",
        "learns of",
    ),
    *("knows nothing", "believes", "thinks", "wants", "remembers", "forgets", "forgotten", "speaks"),
    *("goes back", "brings back", "takes along", "saves nothing up"),
)
ENDINGS = ("there is none", "there are none", "all the same")
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
STACKED = re.compile(
    r"\b(?:what|who|whatever)\b[^,;:]*(?<!\band )(?<!\bor )\b(?:what|who|whatever)\b", re.IGNORECASE
)
CLEFT = re.compile(r"\bit is (?:the \w+|what|they|only \w+|not \w+) (?:that|who|which)\b", re.IGNORECASE)
SO_DOES = re.compile(
    r"(?:^|[,;:] |\band )(?:so|neither|nor) (?:do|does|did|is|are|was|were|has|have|can|will)\b",
    re.IGNORECASE,
)


class Finding(NamedTuple):
    rule: str
    sentence: str


def words_of(phrases: tuple[str, ...]) -> Callable[[str], object]:
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, phrases))})\b", re.IGNORECASE).search


#: The rules by their names on the style page.
RULES: dict[str, Callable[[str], object]] = {
    "length": lambda sentence: len(WORD.findall(sentence)) > MOST_WORDS,
    "clause first": CLAUSE_FIRST.match,
    "stacked clauses": lambda sentence: STACKED.search(sentence) or CLEFT.search(sentence),
    "filler": words_of(FILLERS),
    "figure of speech": words_of(FIGURES),
    "fragment": lambda sentence: SO_DOES.search(sentence) or words_of(ENDINGS)(sentence),
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


def found_in(name: str) -> list[str]:
    return [f"{name}: {rule}: {sentence}" for rule, sentence in findings((ROOT / name).read_text())]


@pytest.mark.parametrize("name", [page.relative_to(ROOT).as_posix() for page in PAGES])
def test_sentences_keep_to_the_rules_of_style(name: str) -> None:
    assert found_in(name) == []


@pytest.mark.parametrize("rule", RULES)
def test_the_style_page_has_an_example_of_each_rule(rule: str) -> None:
    rows = {row[0]: row[1:] for row in table("style.md", "Sentences")}
    bad, good = (names(cell)[0] for cell in rows[rule])
    assert rule in {finding.rule for finding in findings(bad)}
    assert list(findings(good)) == []


def test_the_style_page_lists_the_words_and_the_length() -> None:
    listed = {row[0]: tuple(names(row[1])) for row in table("style.md", "Words to leave out")}
    assert listed == {"filler": FILLERS, "figure of speech": FIGURES, "fragment": ENDINGS}
    assert f"at most {MOST_WORDS} words" in section("style.md", "Sentences")


@pytest.mark.parametrize(
    "text",
    [
        "What is the status of a dead work?",
        "What to do",
        "What happens when a work fails: [failures](guides/failures-and-retries.md).",
        "The overview says what is wrong and what to do.",
        "The command prints what it did, and returns what it found.",
        "`simply` is code.",
        "A work does so once.",
        "```text\nOf course.\n```",
    ],
)
def test_plain_sentences_are_let_through(text: str) -> None:
    assert list(findings(text)) == []


def test_sentences_of_items_cells_and_paragraphs_are_separate() -> None:
    text = "# Zero\n\nOne, see\n3. Two.\n\n- three\n- four\n\n| five | six |\n|---|---|\n"
    assert list(blocks(text)) == ["Zero", "One, see 3. Two.", "three", "four", "five", "six", "---", "---"]


def test_headings_are_read_and_codes_of_messages_are_not() -> None:
    assert [rule for rule, _ in findings("## Once across the fleet\n\n### type-floods\n")] == [
        "figure of speech"
    ]
