"""The migration, the models, the rules and the documentation agree on tables and statuses."""

import io
import re

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection

from django_ayework import models
from django_ayework.models import Edge
from django_ayework.models.work import OUTCOME_LABELS, REASON_LABELS, STATUS_LABELS
from django_ayework.rules.states import MOVES, Outcome, Reason, Status
from tests.architecture.sources import ROOT

OURS = apps.get_app_config("django_ayework").get_models()
MODELS = [model for model in OURS if not model._meta.proxy]
PAGE = ROOT / "docs" / "explanation" / "lifecycle.md"


@pytest.mark.django_db
def test_no_migration_is_missing():
    printed = io.StringIO()
    try:
        call_command("makemigrations", check_changes=True, dry_run=True, stdout=printed)
    except SystemExit:
        pytest.fail(printed.getvalue())
    assert printed.getvalue().strip() == "No changes detected"


@pytest.mark.django_db
@pytest.mark.parametrize("model", MODELS)
def test_a_table_has_the_columns_of_its_model(model):
    tables = set(connection.introspection.table_names())
    own = {table for table in tables if table.startswith("django_ayework_")}
    assert own == {model._meta.db_table for model in MODELS}
    with connection.cursor() as cursor:
        found = connection.introspection.get_table_description(cursor, model._meta.db_table)
    assert {column.name: bool(column.null_ok) for column in found} == {
        field.column: field.null for field in model._meta.local_fields
    }


@pytest.mark.django_db
@pytest.mark.parametrize("model", MODELS)
def test_a_table_has_the_indexes_and_constraints_of_its_model(model):
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, model._meta.db_table)
    named = {name: details["columns"] for name, details in found.items() if name.startswith("ayework_")}
    assert named == expected_names(model)
    other = {name: details for name, details in found.items() if name not in named and details["columns"]}
    kept = [details for details in other.values() if is_index(details)]
    assert {(*details["columns"],) for details in kept} == expected_columns(model)


def expected_names(model) -> dict[str, list[str]]:
    """Return the columns of what the model names."""
    items = [*model._meta.indexes, *model._meta.constraints]
    items = [item.for_database(connection) if hasattr(item, "for_database") else item for item in items]
    fields = {item.name: [name.removeprefix("-") for name in item.fields] for item in items}
    return {name: [model._meta.get_field(each).column for each in names] for name, names in fields.items()}


def is_index(details) -> bool:
    return (details["index"] or details["unique"]) and not details["primary_key"]


def expected_columns(model) -> set[tuple[str, ...]]:
    """Return the columns that have an index or a constraint of their own, without a name in the model."""
    fields = model._meta.local_fields
    return {(field.column,) for field in fields if (field.unique or field.db_index) and not field.primary_key}


@pytest.mark.django_db
@pytest.mark.vendors("postgresql", "sqlite")
def test_indexes_of_some_rows_have_no_others():
    definitions = {
        "postgresql": "SELECT indexname, indexdef FROM pg_indexes",
        "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'index'",
    }
    with connection.cursor() as cursor:
        cursor.execute(definitions[connection.vendor])
        found = dict(cursor.fetchall())
    items = [item for model in MODELS for item in (*model._meta.indexes, *model._meta.constraints)]
    partial = [item.name for item in items if hasattr(item, "for_database")]
    assert partial
    assert [name for name in partial if " WHERE " not in found[name]] == []


@pytest.mark.django_db
@pytest.mark.vendors("postgresql")
def test_pages_of_edges_have_room_for_what_is_written_once_more():
    """Otherwise the outcome of every edge moves it to another page, and into all indexes anew."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = %s", [Edge._meta.db_table])
        assert cursor.fetchone()[0] == ["fillfactor=50"]


def rows_below(head: str) -> str:
    """The rows of the table of the page that has these words at its head."""
    [rows] = re.findall(rf"^\| {head} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    return rows


def tabled(head: str) -> list[str]:
    """The first column of a table."""
    return re.findall(r"^\| `(\w+)` \|", rows_below(head), re.MULTILINE)


def test_the_moves_on_the_page_and_in_its_picture_are_those_of_the_rules():
    moves = {(before, after) for before in MOVES for after in MOVES[before]}
    rows = [line.strip("|").split("|") for line in rows_below(r"from \| to").splitlines()]
    sides = [[re.findall(r"`(\w+)`", cell) for cell in row] for row in rows]
    assert {(before, after) for first, second in sides for before in first for after in second} == moves
    assert set(tabled("from")) == set(Status)
    assert list(MOVES) == list(Status)
    picture = (PAGE.parent.parent / "images" / "states.svg").read_text()
    assert set(re.findall(r"<title>(\w+)&#45;&gt;(\w+)</title>", picture)) == moves


@pytest.mark.parametrize("values", [Status, Reason, Outcome], ids=lambda values: values.__name__.lower())
def test_the_tables_list_what_there_is_in_order(values):
    assert tabled(values.__name__.lower()) == list(values)


@pytest.mark.parametrize(("labels", "values", "field"), [
    (STATUS_LABELS, Status, models.Work._meta.get_field("status")),
    (REASON_LABELS, Reason, models.Work._meta.get_field("reason")),
    (OUTCOME_LABELS, Outcome, models.Attempt._meta.get_field("outcome")),
])  # fmt: skip
def test_every_value_has_a_label_and_fits_its_column(labels, values, field):
    assert list(labels) == list(values)
    assert [value for value, _ in field.choices] == list(values)
    assert all(str(label) for label in labels.values())
    assert max(map(len, values)) <= field.max_length
