"""On MySQL and MariaDB, columns stand in for others in indexes, which so change as seldom as partial ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, migrations, models
from django.db.migrations.state import ProjectState
from django.db.models import Q

from django_ayework.migrations._online import ReplaceIndexOnline
from django_ayework.models import Work
from django_ayework.models.fields import PartialIndex
from django_ayework.store.clock import clock
from django_ayework.store.generated_columns import StandIn
from django_ayework.testing.factories import WorkFactory

STAND_INS = {
    stand_in: column
    for index in Work._meta.indexes
    if isinstance(index, PartialIndex)
    for column, stand_in in index.stand_ins.items()
}
MOMENTS = {"pending": "run_at", "scheduled": "run_at", "blocked": "deadline", "running": "leased_until"}


@pytest.mark.django_db
@pytest.mark.vendors("mysql")
def test_a_column_has_its_stand_in_in_the_rows_of_the_index_alone():
    now = clock.now()
    times = {"run_at": now, "deadline": now + timedelta(hours=1), "leased_until": now + timedelta(hours=2)}
    standing = {"standing", "moment"}
    in_lane = {"pending_in", "pending_type", "pending_rank", "pending_sort_key"}
    expected = {
        "pending": standing | in_lane | {"turn_label", "turn"},
        "running": standing,
        "scheduled": standing,
        "blocked": standing,
        "success": {*standing, "ended_status"},
        "dead": {*standing, "ended_status", "key_ended_at", "unit_ended_at"},
    }
    named = {
        "pending": {"fairness": "a", "sort_key": "1767225600000000"},
        "dead": {"unit": "u", "dedup_type": "t", "dedup_key": "k"},
    }
    for status in expected:
        ended = {"ended_at": now + timedelta(minutes=1)} if status in ("success", "dead") else {}
        WorkFactory(status=status, priority=7, **times, **ended, **named.get(status, {}))
    seen = {}
    for name, column in STAND_INS.items():
        works = Work.objects.alias(stand_in=StandIn(column, name)).filter(stand_in__isnull=False)
        for work in works.annotate(value=StandIn(column, name)):
            assert work.value == real_value(work, name, column)
            seen.setdefault(work.status, set()).add(name)
    assert {status: seen.get(status, set()) for status in expected} == expected


def real_value(work: Work, stand_in: str, column: str) -> object:
    if stand_in == "pending_rank":
        return -work.priority
    return getattr(work, MOMENTS.get(work.status, "ended_at") if stand_in == "moment" else column)


class Parcel(models.Model):
    """A table of this test's own."""

    status = models.CharField(max_length=9)
    sent_at = models.DateTimeField()

    class Meta:
        app_label = "parcels"
        managed = False
        db_table = "parcels_parcel"


ON_ITS_WAY = Q(status="sent")
PLAIN = PartialIndex(fields=["sent_at"], name="parcels_sent", where=ON_ITS_WAY)
PART = PartialIndex(fields=["sent_at"], name="parcels_sent", where=ON_ITS_WAY, part_of="parcels_all")
WITH_STAND_IN = PartialIndex(
    fields=["sent_at"],
    name="parcels_sent",
    where=ON_ITS_WAY,
    leading=(),
    stand_ins={"sent_at": "on_way_since"},
)
WITH_ONE_MORE = PartialIndex(
    fields=["sent_at"],
    name="parcels_sent",
    where=ON_ITS_WAY,
    stand_ins={"status": "on_way", "sent_at": "on_way_since"},
)


@pytest.fixture
def parcels(transactional_db):
    """Make the table, and drop it."""
    with connection.schema_editor() as editor:
        editor.create_model(Parcel)
    yield
    with connection.schema_editor() as editor:
        editor.delete_model(Parcel)


def columns() -> set[str]:
    with connection.cursor() as cursor:
        return {
            column.name for column in connection.introspection.get_table_description(cursor, "parcels_parcel")
        }


def indexed() -> list[str]:
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, "parcels_parcel")
    return found["parcels_sent"]["columns"] if "parcels_sent" in found else []


def on_partial_databases(with_stand_in: list[str], partial: list[str]) -> list[str]:
    return partial if connection.features.supports_partial_indexes else with_stand_in


@pytest.mark.usefixtures("parcels")
def test_an_index_brings_its_stand_ins_and_takes_them_along():
    """As for a project that makes its test tables from the models, without migrations."""
    plain = columns()
    with connection.schema_editor() as editor:
        editor.add_index(Parcel, WITH_STAND_IN)
    assert indexed() == on_partial_databases(["on_way_since"], ["sent_at"])
    assert columns() - plain == set(on_partial_databases(["on_way_since"], []))
    with connection.schema_editor() as editor:
        editor.remove_index(Parcel, WITH_STAND_IN)
    assert (indexed(), columns()) == ([], plain)


@pytest.mark.usefixtures("parcels")
def test_an_index_that_is_part_of_another_is_made_where_it_is_partial():
    with connection.schema_editor() as editor:
        editor.add_index(Parcel, PART)
    assert indexed() == on_partial_databases([], ["sent_at"])
    with connection.schema_editor() as editor:
        editor.remove_index(Parcel, PART)
    assert indexed() == []


def states(operation: ReplaceIndexOnline, former: Any = PLAIN) -> tuple[ProjectState, ProjectState]:
    """What the project is before the operation, and after it."""
    before = ProjectState()
    fields = [(field.name, field.clone()) for field in Parcel._meta.local_fields]
    options = {"db_table": "parcels_parcel", "indexes": [former]}
    migrations.CreateModel("Parcel", fields, options).state_forwards("parcels", before)
    after = before.clone()
    operation.state_forwards("parcels", after)
    return before, after


@pytest.mark.usefixtures("parcels")
def test_a_migration_replaces_an_index_and_back():
    plain = columns()
    operation = ReplaceIndexOnline(model_name="parcel", index=WITH_STAND_IN)
    before, after = states(operation)
    with connection.schema_editor() as editor:
        editor.add_index(Parcel, PLAIN)
    Parcel.objects.bulk_create(Parcel(status=status, sent_at=clock.now()) for status in ("packed", "sent"))

    with connection.schema_editor(atomic=False) as editor:
        operation.database_forwards("parcels", editor, before, after)
    assert indexed() == on_partial_databases(["on_way_since"], ["sent_at"])
    found = Parcel.objects.alias(since=StandIn("sent_at", "on_way_since")).filter(since__isnull=False)
    assert len(found) == (2 if connection.features.supports_partial_indexes else 1)

    with connection.schema_editor(atomic=False) as editor:
        operation.database_backwards("parcels", editor, after, before)
    assert indexed() == on_partial_databases(["status", "sent_at"], ["sent_at"])
    assert columns() == plain


@pytest.mark.usefixtures("parcels")
def test_a_stand_in_of_both_indexes_stays_when_one_replaces_the_other():
    operation = ReplaceIndexOnline(model_name="parcel", index=WITH_ONE_MORE)
    before, after = states(operation, WITH_STAND_IN)
    plain = columns()
    with connection.schema_editor() as editor:
        editor.add_index(Parcel, WITH_STAND_IN)

    with connection.schema_editor(atomic=False) as editor:
        operation.database_forwards("parcels", editor, before, after)
    assert indexed() == on_partial_databases(["on_way", "on_way_since"], ["sent_at"])

    with connection.schema_editor(atomic=False) as editor:
        operation.database_backwards("parcels", editor, after, before)
    assert indexed() == on_partial_databases(["on_way_since"], ["sent_at"])
    assert columns() - plain == set(on_partial_databases(["on_way_since"], []))


@pytest.mark.usefixtures("parcels")
def test_an_index_that_becomes_part_of_a_third_one_stays_as_it_is(django_assert_num_queries):
    moved = PartialIndex(fields=["sent_at"], name="parcels_sent", where=ON_ITS_WAY, part_of="parcels_new")
    operation = ReplaceIndexOnline(model_name="parcel", index=moved)
    before, after = states(operation, PART)
    with connection.schema_editor(atomic=False) as editor, django_assert_num_queries(0):
        operation.database_forwards("parcels", editor, before, after)


def as_there(index: PartialIndex) -> list[str]:
    """What an index covers, on this database."""
    elsewhere = {id(PLAIN): ["status", "sent_at"], id(WITH_STAND_IN): ["on_way_since"], id(PART): []}
    return on_partial_databases(elsewhere[id(index)], ["sent_at"])


@pytest.mark.usefixtures("parcels")
@pytest.mark.parametrize("statement", [1, 2])
@pytest.mark.parametrize("back", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("index", [WITH_STAND_IN, PART], ids=["stand-in", "part of another"])
def test_a_migration_that_was_cut_off_can_be_run_again(statement, back, index):
    operation = ReplaceIndexOnline(model_name="parcel", index=index)
    before, after = states(operation)
    with connection.schema_editor() as editor:
        editor.add_index(Parcel, index if back else PLAIN)
    run = operation.database_backwards if back else operation.database_forwards
    way = (after, before) if back else (before, after)

    with (
        pytest.raises(KeyboardInterrupt),
        connection.schema_editor(atomic=False) as editor,
        connection.execute_wrapper(Cut(statement)),
    ):
        run("parcels", editor, *way)
        raise KeyboardInterrupt  # where there is nothing to replace
    with connection.schema_editor(atomic=False) as editor:
        run("parcels", editor, *way)

    assert indexed() == as_there(PLAIN if back else index)


class Cut:
    """Lets so many statements through and carries out one more, whose answer never comes."""

    def __init__(self, statements: int) -> None:
        self.left = statements

    def __call__(self, execute, sql, params, many, context):
        answer = execute(sql, params, many, context)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return answer
