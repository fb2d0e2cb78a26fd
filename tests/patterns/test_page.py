"""The page as a whole: each pattern is complete, tested, and goes with the others."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from tests.patterns import (
    test_approval,
    test_fan_in,
    test_map_reduce,
    test_pipeline,
    test_polling,
    test_recurring,
    test_saga,
)
from tests.patterns.page import PAGE, blocks

TESTED = [test_fan_in, test_map_reduce, test_saga, test_approval, test_polling, test_recurring, test_pipeline]
TEXT = PAGE.read_text()


def test_every_pattern_of_the_page_is_tested():
    patterns = re.findall(r"^\| \[(.+?)\]\(#", TEXT, re.MULTILINE)
    assert patterns == [module.SECTION for module in TESTED]
    assert len(TESTED) == len(list(Path(__file__).parent.glob("test_*.py"))) - 1
    assert TEXT.count("\n**When a work dies.** ") == TEXT.count("\n**Guaranteed.** ") == len(TESTED)


def test_every_block_is_for_a_file_or_uses_one():
    found = {section: [] for section in ["What they share", *(module.SECTION for module in TESTED)]}
    for block in blocks():
        found[block.section].append(block.file)
    assert found.pop("What they share") == ["shop/models.py", "shop/services.py"]
    assert {tuple(files) for files in found.values()} == {("shop/works.py", "")}


def test_the_works_of_all_patterns_fit_into_one_file():
    names = Counter(
        node.name
        for block in blocks()
        if block.file == "shop/works.py"
        for node in ast.parse(block.source).body
        if isinstance(node, ast.FunctionDef)
    )
    assert [name for name, count in names.items() if count > 1] == []
