"""Questions: short answers, each of which leads to the page with the whole of it."""

from __future__ import annotations

import re

import pytest

from tests.documentation.pages import ROOT, page

PAGE = page("faq.md")
ENTRIES = re.findall(r"^### (.+)\n\n((?:(?!^#).*\n)+)", PAGE.read_text(), re.MULTILINE)
SENTENCE = re.compile(r"[.?!:](?:\s|$)")


def test_the_page_has_as_many_questions_as_a_reader_can_look_through():
    headings = re.findall(r"^### (.+)$", PAGE.read_text(), re.MULTILINE)
    assert headings == [question for question, _ in ENTRIES]
    assert len(set(headings)) == len(headings)
    assert 25 <= len(headings) <= 40


@pytest.mark.parametrize(("question", "answer"), ENTRIES, ids=[question for question, _ in ENTRIES])
def test_a_question_has_an_answer_of_a_few_sentences_that_leads_further(question, answer):
    assert question.endswith("?")
    assert 2 <= len(SENTENCE.findall(answer)) <= 8
    links = re.findall(r"\]\(([^)]+)\)", " ".join(answer.split()))
    assert links
    assert not [link for link in links if link.startswith(("http", "#"))]


@pytest.mark.parametrize("start", ["docs/index.md", "README.md"])
def test_the_first_pages_lead_to_the_questions(start):
    assert re.search(r"\]\((?:docs/)?faq\.md\)", (ROOT / start).read_text())
