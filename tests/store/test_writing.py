"""Works are inserted in several ways, all of which store the same; many rows are updated at once."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.db import DatabaseError, DataError, IntegrityError, OperationalError, connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store import insert as inserts
from django_ayework.store import transitions
from django_ayework.store.database import atomic, clock, code_of, fetch
from django_ayework.store.dialects import array_text
from django_ayework.store.insert import PIECE, copy, insert_one, insert_together, insert_works
from django_ayework.store.many_rows import Update, update_of, update_rows
from django_ayework.store.rows import COLUMNS, WorkRow, find_row, rows_of
from django_ayework.store.transitions import Succeeded
from django_ayework.testing.factories import WorkFactory
from tests.app.models import Order
from tests.marks import on_servers

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
#: Text that a format of its own could take for something else.
HOSTILE = [
    "\\N",
    "\\.",
    "\\",
    "\\\\",
    "a\\",
    "a\tb",
    "a\nb",
    "a\r\nb",
    "\x01\x08\x0b\x1f",
    "'\"`;--",
    "'; --",
]
HOSTILE += [
    "NULL",
    "null",
    "",
    " ",
    "%s",
    "%s %(a)s {0} $1",
    "née 日本",
    "🦊 𝒳",
    "Zoë 🦉",
    "\u2028\ufeff",
    "\t\n\r",
]
HOSTILE += ['{"a":"\\\\N\\t\\u0000"}', "[[1]]", "[1]", "{}", "{a,b}", "a,b", 'say "b"', '{"a": 1}']
#: Of so many characters twenty are more than MariaDB takes at a time, which ends the session.
LARGE = [f"{number:02}".ljust(900_000, "x") for number in range(20)]


def row(id: str, **values: object) -> WorkRow:
    usual = dict.fromkeys(["input", "options"], "{}") | {"type": "shop.add", "queue": "default"}
    return WorkRow(id, **{**usual, "queued_at": NOON, "run_at": NOON, **values})  # type: ignore[arg-type]  # filled by name


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


def one_by_one(works):
    for work in works:
        assert insert_one(work) == 1


def together(works):
    assert insert_together(Work, COLUMNS, works) in (0, len(works))


def copy_works(works):
    copy(Work, COLUMNS, works)


WAYS = {"one": one_by_one, "together": together, "copy": copy_works, "quickest": insert_works}
postgresql = pytest.mark.vendors("postgresql")


@pytest.fixture(params=["one", "together", pytest.param("copy", marks=postgresql), "quickest"])
def way(request):
    """Each way to insert works that the database has."""
    return WAYS[request.param]


def by_id() -> dict[str, WorkRow]:
    return {work.id: work for work in rows_of(Work.objects.all())}


@pytest.mark.django_db(transaction=True)
def test_every_way_stores_the_same_rows_as_django(way):
    with transaction.atomic():
        Work.objects.bulk_create(Work(**work._asdict()) for work in varied())
        expected = by_id()
        transaction.set_rollback(True)
    way(varied())
    assert by_id() == expected


def test_every_way_stores_works_that_have_all_but_their_ids_in_common(way):
    way([row(f"w{n}") for n in range(30)])
    assert {work._replace(id="") for work in by_id().values()} == {row("")}
    assert Work.objects.count() == 30


@postgresql
def test_a_copy_goes_on_with_columns_that_only_later_works_have():
    works = [row(f"w{n:04}") for n in range(PIECE)]
    works += [row(f"x{n:04}", unit=f"u{n}", deadline=NOON) for n in range(PIECE)]
    works += [row(f"y{n:04}") for n in range(PIECE + 1)]
    copy_works(works)
    assert by_id() == {work.id: work for work in works}


@postgresql
@pytest.mark.parametrize("column", ["input", "about_id"])
def test_nul_is_refused_by_every_way_as_one_insert_refuses_it(way, column):
    raised = []
    for insert in (one_by_one, way):
        with pytest.raises((DatabaseError, ValueError)) as refused, atomic():
            insert([row("good"), row("bad", **{column: "a\x00b"})])
        raised.append(refused.type)
    assert raised[0] is raised[1]


@pytest.mark.vendors("sqlite")
@pytest.mark.parametrize("text", ["a\x00b", "\\\x00", "\x00"])
def test_nul_is_never_cut_from_a_text(text):
    with pytest.raises(ValueError, match="without NUL characters"), atomic():
        insert_works([row("good"), row("with", about_id=text)])
    assert Work.objects.count() == 0


@pytest.mark.parametrize("text", [r"\u0000", r"\\u0000"])
def test_a_text_that_looks_like_nul_in_json_is_stored_as_it_is(way, text):
    way([row("good"), row("with", about_id=text)])
    assert by_id()["with"].about_id == text


@pytest.mark.parametrize(
    "way",
    [
        *(pytest.param(name, marks=on_servers) for name in ("one", "together", "quickest")),
        pytest.param("copy", marks=postgresql),
    ],
    indirect=True,
)
def test_a_text_that_is_too_long_is_refused_by_every_way(way):
    with pytest.raises(DataError), atomic():
        way([row("short"), row("long", about_id="x" * 65)])
    assert Work.objects.count() == 0


def test_large_works_go_in_several_statements():
    works = [row(f"w{number:02}", input=text) for number, text in enumerate(LARGE)]
    assert insert_works(works) == set()
    assert all(map(str.__eq__, LARGE, Work.objects.order_by("id").values_list("input", flat=True)))


@pytest.mark.parametrize("count", [2, inserts.MANY, 1_203])
def test_ids_that_are_taken_are_returned_and_the_others_inserted(count):
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


def test_the_code_of_an_error_is_known_with_psycopg2():
    refused = OperationalError("canceling statement due to lock timeout")
    refused.__cause__ = type("LockNotAvailable", (Exception,), {"pgcode": "55P03"})()
    assert code_of(refused) == "55P03"


@pytest.mark.vendors("mysql")
@pytest.mark.parametrize("language", ["cs_CZ", "de_DE", "ja_JP", "ru_RU"])
def test_an_id_that_is_taken_is_found_in_every_language_of_the_server(language):
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@lc_messages")
        [before] = cursor.fetchone()
        cursor.execute("SET SESSION lc_messages = %s", [language])
        try:
            assert insert_works([row("it's")]) == set()
            assert insert_works([row("it's")]) == {"it's"}
            assert insert_works([row("it's"), row("other")]) == {"it's"}
        finally:
            cursor.execute("SET SESSION lc_messages = %s", [before])


def test_a_violated_constraint_is_an_error_and_not_a_taken_id(way):
    steps = [row(f"w{n}", chain_id="first", chain_index=n // 2) for n in range(inserts.MANY)]
    with pytest.raises(IntegrityError, match="chain"), atomic():
        way(steps)
    with pytest.raises(DatabaseError), atomic():
        way([row("good"), row("bad", type=None)])
    assert Work.objects.count() == 0


@postgresql
def test_a_copy_in_a_broken_transaction_is_refused_as_any_statement():
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            copy_works([row("w")])


@postgresql
def test_works_are_inserted_without_copy_where_the_driver_has_none(monkeypatch):
    monkeypatch.setattr(inserts, "can_copy", lambda: False)
    monkeypatch.setattr(inserts, "copy", lambda *args: pytest.fail("copied"))
    works = [row(f"w{n}") for n in range(1_203)]
    insert_works(works)
    assert by_id() == {work.id: work for work in works}


def test_a_statement_has_parameters_for_the_given_values_alone():
    seen = []

    def note(execute, sql, params, many, context):
        seen.append(params)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        insert_one(row("w"))
    assert len(seen[0]) == len([value for value in row("w") if value])


@postgresql
@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_an_array_keeps_its_texts(values):
    assert fetch("SELECT %s::text[]", [array_text(values)]) == [(values,)]


def won(*works: Work, delivery: int = 0) -> set[str]:
    return transitions.succeed(
        [Succeeded(work.id, delivery, f'"{work.id}"') for work in works], "w", clock.now()
    )


@pytest.mark.usefixtures("version")
class TestUpdates:
    @pytest.mark.parametrize("texts", [HOSTILE, LARGE], ids=["of any kind", "in several statements"])
    def test_texts_arrive_unchanged(self, texts):
        given = {
            work.id: text for work, text in zip(WorkFactory.create_batch(len(texts)), texts, strict=True)
        }
        update_rows(Work, {id: {"result": text} for id, text in given.items()})
        assert all(Work.objects.get(id=id).result == text for id, text in given.items())

    def test_different_and_shared_values_are_written(self):
        one, two = (work.id for work in WorkFactory.create_batch(2))
        now, shared = clock.now(), {"worker": "w", "unit": None}
        changes = {one: {"priority": 1, "deadline": now, **shared}}
        changes[two] = {"priority": 2, "deadline": None, **shared}
        update_rows(Work, changes)
        written = Work.objects.values_list("id", "priority", "deadline", "worker", "unit")
        assert set(written) == {(one, 1, now, "w", None), (two, 2, None, "w", None)}
        update = update_of({"a": {"x": 1, "y": "s"}, "b": {"x": 2, "y": "s"}})
        assert update == Update(["a", "b"], {"x": [1, 2]}, {"y": "s"})

    def test_works_that_succeed_keep_the_columns_that_a_success_does_not_change(self):
        works = WorkFactory.create_batch(3, status="running", worker="w", attempt=2, priority=7, error="once")
        gone = WorkFactory(status="running", worker="w")
        Work.objects.filter(id=gone.id).delete()
        assert won(*works) == {work.id for work in works}
        assert won(gone) == set()
        for work in works:
            written = Work.objects.get(id=work.id)
            assert (written.status, written.result, written.completed_by) == ("success", f'"{work.id}"', "w")
            assert (written.worker, written.leased_until, written.error) == (None, None, "")
            assert (written.attempt, written.priority, written.run_at) == (2, 7, work.run_at)
            assert written.ended_at is not None

    @pytest.mark.parametrize(
        "elsewhere", [{"delivery": 1}, {"worker": "other"}, {"status": "pending"}, {"status": "cancelled"}]
    )
    def test_a_work_that_was_moved_meanwhile_neither_succeeds_nor_fails(
        self, elsewhere, django_assert_num_queries
    ):
        """A single work is written by one statement, which checks delivery, worker and status."""
        held, alone, *falling = WorkFactory.create_batch(5, status="running", worker="w")
        lost = falling.pop()
        moves = [find_row(work.id).becoming(Status.DEAD, error="late") for work in (*falling, lost)]
        Work.objects.filter(id=lost.id).update(**elsewhere)
        assert won(held, lost) == {held.id}
        with django_assert_num_queries(2):
            assert (won(alone), won(lost)) == ({alone.id}, set())
        assert transitions.apply(moves) == {work.id for work in falling}
        statuses = dict.fromkeys([held.id, alone.id], "success") | {work.id: "dead" for work in falling}
        statuses[lost.id] = elsewhere.get("status", "running")
        assert dict(Work.objects.values_list("id", "status")) == statuses
        assert Work.objects.values_list("result", "error").get(id=lost.id) == (None, "")
