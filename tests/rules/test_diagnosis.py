"""Findings of ``ayework_doctor``: which figures are worth a warning, and which are a problem."""

from __future__ import annotations

import pytest

from django_ayework.rules import diagnosis, server_diagnosis
from django_ayework.rules.diagnosis import (
    Ahead,
    Connections,
    Diagnosis,
    LateSchedule,
    Level,
    Reuse,
    Unpruned,
    of_clocks,
    of_connections,
    of_indexes,
    of_leases,
    of_overview,
    of_plans,
    of_retention,
    of_reuse,
    of_schedules,
    of_types,
    of_versions,
    of_wakeups,
)
from django_ayework.rules.problems import Problem, ProblemCode
from django_ayework.rules.server_diagnosis import (
    Driver,
    FilePages,
    Holder,
    IndexSize,
    MySQLSettings,
    OpenTransaction,
    SessionLimits,
    SQLiteSettings,
    TableRows,
    of_dead_rows,
    of_driver,
    of_history,
    of_holders,
    of_index_bloat,
    of_integrity,
    of_limits,
    of_mysql_settings,
    of_pages,
    of_sqlite_settings,
    of_transactions,
)

MB = 2**20
WELL = MySQLSettings(buffer_pool=128 * MB, tables=MB, sql_mode="STRICT_TRANS_TABLES", charset="utf8mb4")
LOCAL = SQLiteSettings(journal_mode="wal", busy_timeout=20_000, file_system="ext4")
KEPT = Reuse(max_age=600, health_checks=True, pool=None, concurrency=8, server_ends_after=None)
LOST = Problem(ProblemCode.NO_WORKER, "No worker is running.", "Start one.")
SLOW = Problem(ProblemCode.BACKLOG_GROWS, "All slots are busy.", "Start more workers.")

#: What is judged, its level, and a part of what is said of it.
FINDINGS = [
    (of_overview([], Problem(ProblemCode.ALL_WELL, "All is well."), True)[0], "ok", "All is well."),
    (of_overview([LOST], LOST, True)[0], "problem", "Start one."),
    (of_overview([LOST], LOST, False)[0], "warning", "Start one."),
    (of_overview([SLOW], SLOW, True)[0], "warning", "Start more workers."),
    (of_leases({}, 100), "ok", "No lease"),
    (of_leases({"mail": 2, "fax": 98}, 100), "problem", "100+ running works lapsed"),
    (of_leases({"mail": 2, "fax": 98}, 100), "problem", "Queues: fax, mail."),
    (of_types([], ["shop.pay"]), "ok", "defines"),
    (of_types(["shop.pya"], ["shop.pay"]), "problem", "Did you mean 'shop.pay'?"),
    (of_schedules([LateSchedule("nightly", 59)], 3), "ok", "3 schedules"),
    (of_schedules([LateSchedule("nightly", 90)], 3), "problem", "for 1 min 30 s: nightly."),
    (of_retention([Unpruned("success", "shop.pay", 7, 3599)], 10), "ok", "deleted"),
    (of_retention([Unpruned("success", "shop.pay", 10, 7200)], 10), "warning", "10+ ended works"),
    (of_versions([""], ""), "not_applicable", "VERSION"),
    (of_versions(["v2", "v2"], "v2"), "ok", "v2"),
    (of_versions(["v1", "v2"], "v2"), "warning", "version v1, v2;"),
    (of_clocks(-0.5, []), "ok", "500 ms behind"),
    (of_clocks(3.0, []), "warning", "3 s ahead of"),
    (of_clocks(0.0, [Ahead("mailer-1", 31)]), "problem", "mailer-1"),
    (of_wakeups("PostgresPubSub", 0.01, True), "ok", "A message came back through PostgresPubSub"),
    (of_wakeups("PostgresPubSub", None, True), "problem", "PUBSUB_DATABASE"),
    (of_connections(Connections(75, 100, 30)), "ok", "75 of 100"),
    (of_connections(Connections(76, 100, 30)), "warning", "76%"),
    (of_connections(Connections(10, 100, 101)), "warning", "need up to 101"),
    (of_connections(Connections(91, 100, 30)), "problem", "max_connections"),
    (of_reuse(KEPT), "ok", "kept for 10 min, with health checks"),
    (of_reuse(KEPT._replace(max_age=0)), "warning", "CONN_MAX_AGE is 0"),
    (of_reuse(KEPT._replace(health_checks=False)), "warning", "CONN_HEALTH_CHECKS = True"),
    (of_reuse(KEPT._replace(max_age=None, server_ends_after=60)), "ok", "after 1 min"),
    (of_reuse(KEPT._replace(pool=8)), "ok", "8 connections for 8 slots"),
    (of_reuse(KEPT._replace(pool=4)), "warning", "{'max_size': 8}"),
    (of_plans({"default: shop.pay": "Index Scan using ayework_lane"}, "ayework_lane", True), "ok", "1 lane"),
    (of_plans({"default: shop.pay": "Seq Scan"}, "ayework_lane", True), "problem", "default: shop.pay"),
    (of_plans({"default: shop.pay": "Seq Scan"}, "ayework_lane", False), "warning", "ANALYZE"),
    (of_indexes([], 25), "ok", "All 25 indexes"),
    (of_indexes(["ayework_due"], 25), "problem", "ayework_due"),
    (of_transactions(None), "ok", "No other session"),
    (of_transactions(OpenTransaction(300, "process 17")), "ok", "5 min: process 17."),
    (of_transactions(OpenTransaction(301, "process 17")), "warning", "end it if it was forgotten"),
    (of_transactions(OpenTransaction(3601, "process 17")), "problem", "1 h 1 s: process 17."),
    (of_holders([], []), "ok", "0 prepared transactions, 0 replication slots."),
    (of_holders([Holder("tx", seconds=10)], [Holder("s", retained=MB)]), "ok", "1 prepared transaction,"),
    (of_holders([Holder("tx", seconds=301)], []), "problem", "prepared for long: tx"),
    (of_holders([], [Holder("s", is_active=False)]), "warning", "not in use: s"),
    (of_holders([], [Holder("s", retained=2**30 + 1)]), "problem", "retaining much log: s"),
    (of_dead_rows([TableRows("work", 10, 49_999, 5.0)], True), "ok", "last vacuumed 5 s ago"),
    (of_dead_rows([TableRows("work", 10, 50_001, None)], True), "warning", "last vacuumed never"),
    (of_dead_rows([TableRows("work", 60_000, 50_001, None)], True), "ok", "work has 50001 dead"),
    (of_dead_rows([], False), "problem", "Autovacuum is off."),
    (of_index_bloat([IndexSize("lane", 9 * MB, MB)]), "ok", "none bloated"),
    (of_index_bloat([IndexSize("lane", 100 * MB, 50 * MB)]), "ok", "none bloated"),
    (of_index_bloat([IndexSize("lane", 100 * MB, 20 * MB)]), "warning", "lane (100 MB, 80% empty)"),
    (of_history(100_000), "ok", "100000 entries"),
    (of_history(100_001), "warning", "purge waits"),
    (of_history(1_000_001), "problem", "purge waits"),
    (of_pages(FilePages(100 * MB, 10 * MB, MB)), "ok", "100 MB, 10 MB of it free"),
    (of_pages(FilePages(100 * MB, 61 * MB, MB)), "warning", "VACUUM"),
    (of_pages(FilePages(MB, 0, 65 * MB)), "warning", "read transaction"),
    (of_limits(SessionLimits(60, 0, 60)), "ok", "lock: no bound, idle in transaction: 1 min"),
    (of_limits(SessionLimits(60, 10, 0)), "warning", "idle_transaction_timeout"),
    (of_mysql_settings(WELL), "ok", "128 MB for 1 MB"),
    (of_mysql_settings(WELL._replace(tables=129 * MB)), "warning", "Raise innodb_buffer_pool_size."),
    (of_mysql_settings(WELL._replace(charset="latin1")), "warning", "OPTIONS['charset']"),
    (of_mysql_settings(WELL._replace(sql_mode="")), "problem", "STRICT_TRANS_TABLES"),
    (of_sqlite_settings(LOCAL), "ok", "the busy timeout 20 s"),
    (of_sqlite_settings(LOCAL._replace(journal_mode="delete")), "warning", "journal_mode=WAL"),
    (of_sqlite_settings(LOCAL._replace(busy_timeout=4999)), "warning", "OPTIONS['timeout']"),
    (of_sqlite_settings(LOCAL._replace(file_system="nfs4")), "problem", "local disk"),
    (of_integrity([], 0.2), "ok", "found nothing in 200 ms"),
    (of_integrity(None, 10.0), "warning", "ended after 10 s"),
    (of_integrity(["row 3 missing"], 1.0), "problem", "row 3 missing"),
    (of_driver(Driver("psycopg", "3.2", "PostgreSQL 17.2")), "ok", "PostgreSQL 17.2, by psycopg 3.2."),
    (of_driver(Driver("psycopg2", "2.9", "PostgreSQL 17.2")), "warning", "psycopg 3"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("found", "level", "part"), FINDINGS, ids=[f"{each[0].check}-{each[1]}" for each in FINDINGS]
)
def test_the_level_and_the_text_of_a_finding(found: Diagnosis, level: str, part: str) -> None:
    assert found.level == level
    assert part in f"{found.text} {found.remedy}"
    assert bool(found.remedy) == (level in ("warning", "problem"))


def test_every_judge_has_a_finding_of_each_kind() -> None:
    """A judge that can warn is tried with figures that are well, and with figures that are not."""
    levels: dict[str, set[Level]] = {}
    for found, level, _ in FINDINGS:
        levels.setdefault(found.check, set()).add(Level(level))
    assert all(Level.OK in each and len(each) > 1 for each in levels.values()), levels
    judges = [name for room in (diagnosis, server_diagnosis) for name in vars(room) if name.startswith("of_")]
    assert {name for name in judges if name not in globals()} == set()
