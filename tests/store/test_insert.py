"""Works are inserted in several ways, all of which store the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.db import DatabaseError, DataError, IntegrityError, connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.models import Work
from django_ayework.store import insert as inserts
from django_ayework.store.database import atomic, fetch
from django_ayework.store.dialects import array_text
from django_ayework.store.insert import PIECE, copy, insert_one, insert_together, insert_works
from django_ayework.store.rows import COLUMNS, WorkRow, rows_of
from tests.app.models import Order

pytestmark = pytest.mark.django_db
Way = Callable[[Sequence[WorkRow]], object]
NOON = datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
EMPTY = (
    dict.fromkeys(COLUMNS)
    | dict.fromkeys(["reason", "fairness", "error", "sort_key"], "")
    | dict.fromkeys(["priority", "chain_index", "attempt", "delivery"], 0)
    | dict.fromkeys(["input", "options"], "{}")
    | {"type": "shop.add", "queue": "default", "status": "pending", "queued_at": NOON, "run_at": NOON}
)
#: Text that a format of its own could take for something else.
HOSTILE = ["\\N", "\\.", "\\", "\\\\", "a\tb", "a\nb", "a\r\nb", "\x01\x08\x0b\x1f", "'\"`;--", "NULL"]
HOSTILE += ["", " ", "%s %(a)s {0} $1", "née 日本", "🦊 𝒳", "\u2028\ufeff", '{"a":"\\\\N\\t\\u0000"}']
HOSTILE += ["[[1]]", "{a,b}"]


def row(id: str, **values: object) -> WorkRow:
    return WorkRow(**{**EMPTY, "id": id, **values})  # type: ignore[arg-type]  # filled by name


def varied() -> list[WorkRow]:
    """Works that differ in every column that is inserted, with NULL in some and values in others."""
    paris = timezone(timedelta(hours=2))
    return [
        row("plain"),
        row("moments", status="scheduled", run_at=NOON.astimezone(paris), deadline=NOON + timedelta(days=1)),
        row("numbers", priority=-(2**31) + 1, chain_index=7, chain_id="plain", attempt=3, delivery=9),
        row("names", type="shop.pay", queue="mail", fairness="tenant", sort_key="k", unit="k"),
        row("reasons", reason="expired"),
        row("relations", group_id="plain", parent_id="plain", about_type="shop.order", about_id="17"),
        row("keys", dedup_key="nightly", dedup_type="shop.add", status="blocked", error="late"),
        *(row(f"hostile-{n}", input=text, options=text, error=text) for n, text in enumerate(HOSTILE)),
        *(row(f"named-{n}", about_type=text, about_id=text) for n, text in enumerate(HOSTILE)),
    ]


def one_by_one(works: Sequence[WorkRow]) -> None:
    for work in works:
        assert insert_one(work) == 1


def together(works: Sequence[WorkRow]) -> None:
    assert insert_together(Work, COLUMNS, works) in (0, len(works))


def copy_works(works: Sequence[WorkRow]) -> None:
    copy(Work, COLUMNS, works)


ALL = ("sqlite", "postgresql", "mysql")
WAYS: dict[str, tuple[Way, tuple[str, ...]]] = {
    "one": (one_by_one, ALL),
    "together": (together, ALL),
    "copy": (copy_works, ("postgresql",)),
    "quickest": (insert_works, ALL),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, database_vendor: str) -> Way:
    """Each way to insert works that the database has."""
    insert, vendors = WAYS[request.param]
    if database_vendor not in vendors:
        pytest.skip(f"not a way of {database_vendor}")
    return insert


@pytest.fixture
def expected() -> dict[str, WorkRow]:
    """What is stored of varied works by Django itself."""
    with transaction.atomic():
        Work.objects.bulk_create(Work(**work._asdict()) for work in varied())
        stored = by_id()
        transaction.set_rollback(True)
    return stored


def by_id() -> dict[str, WorkRow]:
    return {work.id: work for work in rows_of(Work.objects.all())}


@pytest.mark.django_db(transaction=True)
def test_every_way_stores_the_same_rows_as_django(way: Way, expected: dict[str, WorkRow]) -> None:
    way(varied())
    assert by_id() == expected


def test_every_way_stores_works_that_have_all_but_their_ids_in_common(way: Way) -> None:
    way([row(f"w{n}") for n in range(30)])
    assert {work._replace(id="") for work in by_id().values()} == {row("")}
    assert Work.objects.count() == 30


@pytest.mark.vendors("postgresql")
def test_a_copy_goes_on_with_columns_that_only_later_works_have() -> None:
    works = [row(f"w{n:04}") for n in range(PIECE)]
    works += [row(f"x{n:04}", unit=f"u{n}", deadline=NOON) for n in range(PIECE)]
    works += [row(f"y{n:04}") for n in range(PIECE + 1)]
    copy_works(works)
    assert by_id() == {work.id: work for work in works}


@pytest.mark.vendors("postgresql")
@pytest.mark.parametrize("column", ["input", "about_id"])
def test_nul_is_refused_by_every_way_as_one_insert_refuses_it(way: Way, column: str) -> None:
    works = [row("good"), row("bad", **{column: "a\x00b"})]
    with pytest.raises((DatabaseError, ValueError)) as alone, atomic():
        one_by_one(works)
    with pytest.raises((DatabaseError, ValueError)) as raised, atomic():
        way(works)
    assert raised.type is alone.type


@pytest.mark.vendors("sqlite")
@pytest.mark.parametrize("text", ["a\x00b", "\\\x00", "\x00"])
def test_nul_is_never_cut_from_a_text(text: str) -> None:
    with pytest.raises(ValueError, match="without NUL characters"), atomic():
        insert_works([row("good"), row("with", about_id=text)])
    assert Work.objects.count() == 0


@pytest.mark.parametrize("text", [r"\u0000", r"\\u0000"])
def test_a_text_that_looks_like_nul_in_json_is_stored_as_it_is(way: Way, text: str) -> None:
    way([row("good"), row("with", about_id=text)])
    assert by_id()["with"].about_id == text


@pytest.mark.vendors("postgresql", "mysql")
def test_a_text_that_is_too_long_is_refused_by_every_way(way: Way) -> None:
    with pytest.raises(DataError), atomic():
        way([row("short"), row("long", about_id="x" * 65)])
    assert Work.objects.count() == 0


#: Of so many characters twenty are more than MariaDB takes at a time, which ends the session.
LARGE = 900_000


def test_large_works_go_in_several_statements() -> None:
    works = [row(f"w{n:02}", input=f"{n:02}".ljust(LARGE, "x")) for n in range(20)]
    assert insert_works(works) == set()
    stored = Work.objects.order_by("id").values_list("input", flat=True)
    assert [text == work.input for text, work in zip(stored, works, strict=True)] == [True] * 20


@pytest.mark.parametrize("count", [2, inserts.MANY, 1_203])
def test_ids_that_are_taken_are_returned_and_the_others_inserted(count: int) -> None:
    insert_works([row("w0", input="first"), row(f"w{count - 1}", input="first")])
    works = [row(f"w{n}") for n in range(count)]
    with transaction.atomic():
        taken = insert_works(works)
        Order.objects.create(reference="after")
    assert taken == {"w0", f"w{count - 1}"}
    assert Work.objects.count() == count
    assert insert_works([work._replace(input="second") for work in works]) == {work.id for work in works}
    assert not Work.objects.filter(input="second").exists()
    assert Work.objects.get(id="w0").input == "first"
    assert Order.objects.count() == 1


def test_a_violated_constraint_is_an_error_and_not_a_taken_id(way: Way) -> None:
    steps = [row(f"w{n}", chain_id="first", chain_index=n // 2) for n in range(inserts.MANY)]
    with pytest.raises(IntegrityError, match="chain"), atomic():
        way(steps)
    with pytest.raises(DatabaseError), atomic():
        way([row("good"), row("bad", type=None)])
    assert Work.objects.count() == 0


@pytest.mark.vendors("postgresql")
def test_a_copy_in_a_broken_transaction_is_refused_as_any_statement() -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            copy_works([row("w")])


@pytest.mark.vendors("postgresql")
def test_works_are_inserted_without_copy_where_the_driver_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inserts, "can_copy", lambda: False)
    monkeypatch.setattr(inserts, "copy", lambda *args: pytest.fail("copied"))
    works = [row(f"w{n}") for n in range(1_203)]
    insert_works(works)
    assert by_id() == {work.id: work for work in works}


def test_a_statement_has_parameters_for_the_given_values_alone() -> None:
    seen = []

    def note(execute, sql, params, many, context):  # type: ignore[no-untyped-def]
        seen.append(params)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        insert_one(row("w"))
    assert len(seen[0]) == len([value for value in row("w") if value])


@pytest.mark.vendors("postgresql")
@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_an_array_keeps_its_texts(values):
    assert fetch("SELECT %s::text[]", [array_text(values)]) == [(values,)]
