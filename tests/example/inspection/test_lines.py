"""Counting lines of code."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_project.audit.inspection.lines import LineCounter, counter_for


def count(*chunks: bytes, comment: bytes = b"#") -> int:
    counter = LineCounter(comment)
    for chunk in chunks:
        counter.feed(chunk)
    return counter.lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", 0),
        (b"\n\n", 0),
        (b"x = 1", 1),
        (b"x = 1\n", 1),
        (b"x = 1\r\ny = 2\r\n", 2),
        (b"  # only a comment\n", 0),
        (b"x = 1  # with a comment\n", 1),
        (b"\t\n x\n", 1),
        (b"\xff\xfe\x00\n", 1),
    ],
)
def test_python(content: bytes, lines: int) -> None:
    assert count(content) == lines


def test_a_comment_sign_of_two_characters() -> None:
    assert count(b"// no\n / yes\nyes\n", comment=b"//") == 2


@given(
    content=st.lists(st.sampled_from([b"x", b"#", b"/", b" ", b"\n", b"// a\n", b"b = 1\n"])).map(b"".join),
    cuts=st.lists(st.integers(min_value=0, max_value=60)),
    comment=st.sampled_from([b"#", b"//"]),
)
def test_where_the_chunks_are_cut_does_not_matter(content: bytes, cuts: list[int], comment: bytes) -> None:
    edges = [0, *sorted(cuts), len(content)]
    chunks = [content[start:end] for start, end in pairwise(edges)]
    lines = [line.strip() for line in content.split(b"\n")]
    expected = sum(1 for line in lines if line and not line.startswith(comment))
    assert count(*chunks, comment=comment) == expected


@pytest.mark.parametrize(
    ("path", "counted"), [("a.py", True), ("a/B.PYI", True), ("a.so", False), ("RECORD", False)]
)
def test_only_source_files_are_counted(path: str, counted: bool) -> None:
    assert (counter_for(path) is not None) is counted
