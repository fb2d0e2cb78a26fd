"""The tutorial can be done as it is written."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from tests.documentation.pages import page
from tests.documentation.tutorial import PAGES, tutorial


@pytest.mark.timeout(300)
def test_the_tutorial_can_be_done_from_its_first_page_to_its_last(tmp_path) -> None:
    with tutorial(tmp_path) as reader:
        for each in PAGES:
            reader.do(each)


def test_each_page_leads_to_the_next_and_the_index_to_all() -> None:
    links = re.findall(r"\]\((\d-\w+\.md)\)", page("tutorial/index.md").read_text())
    assert links == [each.name for each in PAGES]
    for before, after in pairwise(PAGES):
        assert f"]({after.name})" in before.read_text().splitlines()[-1]
