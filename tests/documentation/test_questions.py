"""Questions: short answers, each of which leads to the page with the whole of it."""

from __future__ import annotations

import re

import pytest

from tests.documentation.pages import ROOT, headings, page

ENTRIES = re.findall(r"^### (.+)\n\n((?:(?!^#).*\n)+)", page("faq.md").read_text(), re.MULTILINE)


def test_the_page_has_as_many_questions_as_a_reader_can_look_through():
    questions = headings("faq.md", 3)
    assert questions == [question for question, _ in ENTRIES]
    assert len(set(questions)) == len(questions)
    assert 25 <= len(questions) <= 40
    for start in ("docs/index.md", "README.md"):
        assert re.search(r"\]\((?:docs/)?faq\.md\)", (ROOT / start).read_text()), start


@pytest.mark.parametrize(("question", "answer"), ENTRIES, ids=[question for question, _ in ENTRIES])
def test_a_question_has_an_answer_of_a_few_sentences_that_leads_further(question, answer):
    assert question.endswith("?")
    assert 2 <= len(re.findall(r"[.?!:](?:\s|$)", answer)) <= 8
    links = re.findall(r"\]\(([^)]+)\)", " ".join(answer.split()))
    assert links
    assert not [link for link in links if link.startswith(("http", "#"))]
