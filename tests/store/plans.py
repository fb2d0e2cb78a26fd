"""What the database plans to do for a function of the store."""

import re

from django.db import connection

from django_ayework.models import Work
from django_ayework.testing.factories import WorkFactory

#: SQLite finds its plans by the schema and a few statistics: a tenth of the rows leads to the same ones.
SHARE = 10 if connection.vendor == "sqlite" else 1


def make_works(number: int, **columns: object) -> list[Work]:
    """Make works in one statement."""
    return Work.objects.bulk_create(WorkFactory.build_batch(number, **columns))


def analyse(table: str) -> None:
    """Let the planner know what is there."""
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {'TABLE ' if connection.vendor == 'mysql' else ''}{table}")
        cursor.fetchall() if connection.vendor == "mysql" else None


def plans_of(act, table: str = "django_ayework_work") -> list[str]:
    """Run a store function; return the plan of each statement it ran over works, or over another table.

    Statements are explained before they run, under the settings of their transaction.
    """
    seen = []

    def note(execute, sql, params, many, context):
        verb = sql.split()[0]
        reads = "SELECT" in sql if verb == "INSERT" else verb in ("SELECT", "UPDATE", "DELETE", "WITH")
        if table in sql and reads:
            seen.append(explained(sql, params[0] if many else params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        act()
    assert seen, f"no statement over {table} was run"
    return seen


#: MySQL has another format, unless it is told.
EXPLAIN = {
    "postgresql": "EXPLAIN",
    "sqlite": "EXPLAIN QUERY PLAN",
    "mysql": "EXPLAIN FORMAT=TRADITIONAL",
}


def explained(sql, params) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"{EXPLAIN[connection.vendor]} {sql}", params)
        return "\n".join(" ".join(map(str, row)) for row in cursor.fetchall())


def entries_read(act) -> int:
    """Run a store function on MySQL or MariaDB; return how many entries of indexes it went through."""

    def so_far() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            return sum(int(number) for _, number in cursor.fetchall())

    before = so_far()
    act()
    return so_far() - before


def assert_reads_through(index: str, plans: list[str]) -> None:
    assert any(index in plan for plan in plans), plans
    assert_scans_nothing(plans)


def assert_reads_in_order(index: str, plans: list[str]) -> None:
    assert_reads_through(index, plans)
    for plan in plans:
        assert not re.search("filesort|Sort|TEMP B-TREE", plan), plan


def assert_finds_turns(plans: list[str]) -> None:
    if connection.vendor == "mysql":  # whose plans tell less: the callers count the entries that it reads
        return
    for index in ("ayework_turn", "ayework_lane"):
        assert_reads_in_order(index, plans)


def assert_scans_nothing(plans: list[str], table: str = "django_ayework_work") -> None:
    for plan in plans:
        assert not scans_table(plan, table), plan


def scans_table(plan: str, table: str) -> bool:
    named = f"(?:{table}|w|edge)"  # as some statements call theirs
    return {
        "postgresql": re.search(rf"Seq Scan on {table}\b", plan) is not None,
        "sqlite": any(
            re.search(rf"\bSCAN {named}\b", line) and "INDEX" not in line for line in plan.splitlines()
        ),
        "mysql": re.search(rf"\b{named} ALL ", plan) is not None,
    }[connection.vendor]
