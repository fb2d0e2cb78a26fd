"""Findings of ``ayework_doctor``: which figures are worth a warning, and which are a problem."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from django_ayework.rules import diagnosis, server_diagnosis
from django_ayework.rules.diagnosis import Level
from django_ayework.rules.problems import Problem, ProblemCode

#: The judges of both modules, and what they judge.
rule = SimpleNamespace(**vars(diagnosis) | vars(server_diagnosis))
MB = 2**20
WELL = {
    **{"buffer_pool": 128 * MB, "tables": MB, "sql_mode": "STRICT_TRANS_TABLES", "charset": "utf8mb4"},
    **{"safe_updates": False, "select_limit": 2**64 - 1},
}
LOCAL = {"journal_mode": "wal", "busy_timeout": 20_000, "file_system": "ext4", "is_in_memory": False}
KEPT = {"max_age": 600, "health_checks": True, "pool": None, "concurrency": 8, "ends": None}
LOST = Problem(ProblemCode.NO_WORKER, "No worker is running.", "Start one.")
SLOT = rule.VacuumBlocker("s", retained=MB)
SLOW = Problem(ProblemCode.BACKLOG_GROWS, "All slots are busy.", "Start more workers.")

#: What is judged, its level, and a part of what is said of it.
FINDINGS = [
    ("overview", [[], Problem(ProblemCode.ALL_WELL, "All is well."), True], "ok", "All is well."),
    ("overview", [[LOST], LOST, True], "problem", "Start one."),
    ("overview", [[LOST], LOST, False], "warning", "Start one."),
    ("overview", [[SLOW], SLOW, True], "warning", "Start more workers."),
    ("leases", [{}, 100], "ok", "No lease"),
    ("leases", [{"mail": 2, "fax": 98}, 100], "problem", "100+ running works lapsed"),
    ("leases", [{"mail": 2, "fax": 98}, 100], "problem", "Queues: fax, mail."),
    ("types", [[], ["shop.pay"]], "ok", "defines"),
    ("types", [["shop.pya"], ["shop.pay"]], "problem", "Did you mean 'shop.pay'?"),
    ("schedules", [{"nightly": 59}, 3], "ok", "3 schedules"),
    ("schedules", [{"nightly": 90}, 3], "problem", "for 1 min 30 s: nightly."),
    ("retention", [[rule.Unpruned("shop.pay", 7, 3599)], 10], "ok", "deleted"),
    ("retention", [[rule.Unpruned("shop.pay", 10, 7200)], 10], "warning", "10+ ended works"),
    ("versions", [[""], ""], "not_applicable", "VERSION"), ("versions", [["v2", "v2"], "v2"], "ok", "v2"),
    ("versions", [["v1", "v2"], "v2"], "warning", "version v1, v2;"),
    ("clocks", [-0.5, []], "ok", "500 ms behind"), ("clocks", [3.0, []], "warning", "3 s ahead of"),
    ("clocks", [0.0, [("mailer-1", 31)]], "problem", "mailer-1"),
    ("wakeups", ["PostgresPubSub", 0.01, True], "ok", "A message came back through PostgresPubSub"),
    ("wakeups", ["PostgresPubSub", None, True], "problem", "PUBSUB_DATABASE"),
    ("delivery", ["RedisStreamsQueue", 0.01, ""], "ok", "An id came back through RedisStreamsQueue"),
    ("delivery", ["RedisStreamsQueue", None, "Refused: no."], "problem", ": Refused: no. Workers"),
    ("writes", [""], "ok", "can be written."),
    ("writes", ["permission denied"], "problem", "cannot be written: permission denied. If the server"),
    ("connections", [75, 100, "the server", 30], "ok", "75 of 100"),
    ("connections", [76, 100, "the server", 30], "warning", "76%"),
    ("connections", [10, 100, "the server", 101], "warning", "need up to 101"),
    ("connections", [91, 100, "the server", 30], "problem", "max_connections"),
    ("reuse", KEPT, "ok", "kept for 10 min, with health checks"),
    ("reuse", KEPT | {"max_age": 0}, "warning", "CONN_MAX_AGE is 0"),
    ("reuse", KEPT | {"health_checks": False}, "warning", "CONN_HEALTH_CHECKS = True"),
    ("reuse", KEPT | {"max_age": None, "ends": 60}, "ok", "after 1 min"),
    ("reuse", KEPT | {"pool": 8}, "ok", "8 connections for 8 slots"),
    ("reuse", KEPT | {"pool": 4}, "warning", "{'max_size': 8}"),
    ("plans", [{"default: shop.pay": "Index Scan using ayework_lane"}, True], "ok", "1 lane"),
    ("plans", [{"default: shop.pay": "Seq Scan"}, True], "problem", "default: shop.pay"),
    ("plans", [{"default: shop.pay": "Seq Scan"}, False], "warning", "ANALYZE"),
    ("indexes", [[], 25], "ok", "All 25 indexes"),
    ("indexes", [["ayework_due"], 25], "problem", "ayework_due"),
    ("transactions", [None], "ok", "No other session"),
    ("transactions", [rule.OpenTransaction(300, "process 17")], "ok", "5 min: process 17."),
    ("transactions", [rule.OpenTransaction(301, "process 17")], "warning", "end it if it was forgotten"),
    ("transactions", [rule.OpenTransaction(3601, "process 17")], "problem", "1 h 1 s: process 17."),
    ("holders", [[], []], "ok", "0 prepared transactions, 0 replication slots."),
    ("holders", [[rule.VacuumBlocker("tx", seconds=10)], [SLOT]], "ok", "1 prepared transaction,"),
    ("holders", [[rule.VacuumBlocker("tx", seconds=301)], []], "problem", "prepared for long: tx"),
    ("holders", [[], [rule.VacuumBlocker("s", is_active=False)]], "warning", "not in use: s"),
    ("holders", [[], [rule.VacuumBlocker("s", retained=2**30 + 1)]], "problem", "retaining much log: s"),
    ("dead_rows", [[rule.TableRows("work", 10, 49_999, 5.0)], True], "ok", "last vacuumed 5 s ago"),
    ("dead_rows", [[rule.TableRows("work", 10, 50_001, None)], True], "warning", "was never vacuumed"),
    ("dead_rows", [[rule.TableRows("work", 60_000, 50_001, None)], True], "ok", "work has 50001 dead"),
    ("dead_rows", [[], False], "problem", "Autovacuum is off."),
    ("index_bloat", [[rule.IndexSize("lane", 9 * MB, MB)]], "ok", "none bloated"),
    ("index_bloat", [[rule.IndexSize("lane", 100 * MB, 50 * MB)]], "ok", "none bloated"),
    ("index_bloat", [[rule.IndexSize("lane", 100 * MB, 20 * MB)]], "warning", "lane (100 MB, 80% empty)"),
    ("history", [100_000], "ok", "100000 entries"), ("history", [100_001], "warning", "purge waits"),
    ("history", [1_000_001], "problem", "purge waits"),
    ("pages", [100 * MB, 10 * MB, MB], "ok", "100 MB, 10 MB of it free"),
    ("pages", [100 * MB, 61 * MB, MB], "warning", "VACUUM"),
    ("pages", [MB, 0, 65 * MB], "warning", "read transaction"),
    ("limits", [60, 0, 60], "ok", "lock: no bound, idle in transaction: 1 min"),
    ("limits", [60, 10, 0], "warning", "idle_transaction_timeout"),
    ("mysql_settings", WELL, "ok", "128 MB for 1 MB"),
    ("mysql_settings", WELL | {"tables": 129 * MB}, "warning", "Raise innodb_buffer_pool_size."),
    ("mysql_settings", WELL | {"charset": "latin1"}, "problem", "OPTIONS['charset']"),
    ("mysql_settings", WELL | {"safe_updates": True}, "problem", "Reset sql_safe_updates"),
    ("mysql_settings", WELL | {"select_limit": 1000}, "problem", "sql_select_limit is set."),
    ("mysql_settings", WELL | {"sql_mode": ""}, "problem", "STRICT_TRANS_TABLES"),
    ("sqlite_settings", LOCAL, "ok", "the busy timeout 20 s"),
    ("sqlite_settings", LOCAL | {"journal_mode": "delete"}, "warning", "journal_mode=WAL"),
    ("sqlite_settings", LOCAL | {"journal_mode": "memory"}, "warning", "journal_mode=WAL"),
    ("sqlite_settings", LOCAL | {"journal_mode": "memory", "is_in_memory": True}, "ok", "20 s"),
    ("sqlite_settings", LOCAL | {"busy_timeout": 4999}, "warning", "OPTIONS['timeout']"),
    ("sqlite_settings", LOCAL | {"file_system": "nfs4"}, "problem", "local disk"),
    ("integrity", [[], 0.2], "ok", "found nothing in 200 ms"),
    ("integrity", [None, 10.0], "warning", "ended after 10 s"),
    ("integrity", [["row 3 missing"], 1.0], "problem", "row 3 missing"),
    ("driver", ["psycopg", "3.2", "PostgreSQL 17.2"], "ok", "PostgreSQL 17.2, by psycopg 3.2."),
    ("driver", ["psycopg2", "2.9", "PostgreSQL 17.2"], "warning", "psycopg 3"),
]  # fmt: skip


def finding(judge, figures):
    judged = getattr(rule, f"of_{judge}")
    found = judged(**figures) if isinstance(figures, dict) else judged(*figures)
    return found[0] if judge == "overview" else found


@pytest.mark.parametrize(("judge", "figures", "level", "part"), FINDINGS)
def test_the_level_and_the_text_of_a_finding(judge, figures, level, part):
    found = finding(judge, figures)
    assert found.level == level
    assert part in f"{found.text} {found.remedy}"
    assert bool(found.remedy) == (level in ("warning", "problem"))


def test_every_judge_has_a_finding_of_each_kind():
    """A judge that can warn is tried with figures that are well, and with figures that are not."""
    levels = {}
    for judge, figures, level, _ in FINDINGS:
        levels.setdefault(finding(judge, figures).check, set()).add(level)
    assert all(Level.OK in each and len(each) > 1 for each in levels.values()), levels
    assert {name for name in vars(rule) if name.startswith("of_")} == {
        f"of_{judge}" for judge, *_ in FINDINGS
    }
