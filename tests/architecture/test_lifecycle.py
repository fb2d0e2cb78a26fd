"""Statuses, moves, reasons and outcomes are the same in the rules, in the models and in the documentation."""

import re

import pytest

from django_ayework import models
from django_ayework.models.work import OUTCOME_LABELS, REASON_LABELS, STATUS_LABELS
from django_ayework.rules.states import MOVES, Outcome, Reason, Status
from tests.architecture.sources import ROOT

PAGE = ROOT / "docs" / "concepts" / "lifecycle.md"
ARROW = re.compile(r"^\s*(\w+|\[\*\])\s*-->\s*(\w+|\[\*\])", re.MULTILINE)


def drawn_moves() -> set[tuple[str, str]]:
    """The arrows of the diagram; ``[*]`` is birth or the end."""
    [diagram] = re.findall(r"```mermaid\s+stateDiagram-v2\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return {arrow for arrow in ARROW.findall(diagram) if "[*]" not in arrow}


def tabled(heading: str) -> list[str]:
    """The first column of the table that has this word at its head."""
    [rows] = re.findall(rf"^\| {heading} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    return re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)


def test_the_moves_of_the_diagram_are_the_moves_there_are():
    assert drawn_moves() == {(before, after) for before in MOVES for after in MOVES[before]}


def test_the_statuses_of_the_diagram_are_the_statuses_there_are():
    assert {status for move in drawn_moves() for status in move} == set(Status)


@pytest.mark.parametrize("values", [Status, Reason, Outcome], ids=lambda values: values.__name__.lower())
def test_the_tables_list_what_there_is_in_order(values):
    assert tabled(values.__name__.lower()) == list(values)


def test_every_status_has_its_moves():
    assert list(MOVES) == list(Status)


@pytest.mark.parametrize(
    ("labels", "values", "field"),
    [
        (STATUS_LABELS, Status, models.Work._meta.get_field("status")),
        (REASON_LABELS, Reason, models.Work._meta.get_field("reason")),
        (OUTCOME_LABELS, Outcome, models.Attempt._meta.get_field("outcome")),
    ],
)
def test_every_value_has_a_label_and_fits_its_column(labels, values, field):
    assert list(labels) == list(values)
    assert [value for value, _ in field.choices] == list(values)
    assert all(str(label) for label in labels.values())
    assert max(map(len, values)) <= field.max_length
