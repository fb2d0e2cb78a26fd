"""System checks of the setting ``AYEWORK``."""

import subprocess
import sys

import pytest
from django.apps import apps
from django.core.checks import ERROR, WARNING, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connections

from django_ayework.checks import check_settings, check_settings_beside
from tests.architecture.sources import ROOT
from tests.checks.hints import hint_of

REDIS = {"PUBSUB": "redis", "REDIS_URL": "redis://localhost"}


@pytest.fixture
def found(settings):
    """What the check says of these values, by id."""

    def check(given, level=ERROR):
        settings.AYEWORK = given
        messages = run_checks(tags=["ayework"])
        assert all(message.level == level for message in messages)
        return {message.id.removeprefix("ayework."): message for message in messages}

    return check


def test_the_defaults_and_the_suites_own_settings_are_fine(found):
    assert run_checks(tags=["ayework"]) == []
    assert found({}) == found({"DATABASE": "default"}) == found({"PUBSUB_DATABASE": "default"}) == {}
    assert [found({"PUBSUB": name}) for name in ("sqlite", "local", "polling")] == [{}] * 3
    assert found(REDIS) == {}
    bulk = {"QUEUES": {"bulk": {"DELIVERY": "redis-streams"}}}
    assert found(bulk | {"REDIS_URL": "redis://localhost"}) == {}


@pytest.mark.parametrize(("given", "id", "message", "hint"), [
    ({"CONCURENCY": 4}, "E001", "AYEWORK has the unknown key 'CONCURENCY'.", "Did you mean 'CONCURRENCY'?"),
    ({"lease": 4}, "E001", "AYEWORK has the unknown key 'lease'.", "Did you mean 'LEASE'?"),
    ({"QQQ": 4}, "E001", "AYEWORK has the unknown key 'QQQ'.", None),
    *(
        ({key: "defualt"}, id, f"AYEWORK['{key}'] is 'defualt', but DATABASES has no such alias.",
         "Did you mean 'default'?")
        for key, id in (("DATABASE", "E003"), ("PUBSUB_DATABASE", "E009"))
    ),
    *(
        ({"PUBSUB": "redis", "REDIS_URL": url}, "E010",
         f"AYEWORK['REDIS_URL'] is no address of Redis: {url!r}.", ...)
        for url in ("localhost:6379", "http://localhost:6379", "//localhost")
    ),
])  # fmt: skip
def test_the_message_and_the_hint_of_an_error(found, given, id, message, hint):
    errors = found(given)
    assert errors[id].msg == message
    assert hint is ... or hint_of(errors[id]) == hint


def test_a_database_that_commits_nothing_by_itself_is_an_error(found, monkeypatch):
    monkeypatch.setitem(connections.settings["default"], "AUTOCOMMIT", False)
    with pytest.raises(SystemCheckError, match="AUTOCOMMIT of the database 'default' is off"):
        call_command("ayework_status", skip_checks=False)
    assert "alias of its own" in hint_of(found({})["E015"])


@pytest.mark.parametrize(("given", "id", "named"), [
    *(({key: value}, "E002", f"AYEWORK['{key}']") for key, value in (
        ("LEASE", -1), ("RETRY", {"attempts": 0}), ("RETENTION", 5), ("ON_EVENT", "nowhere.to.be.found"),
        ("CODEC", "nowhere.Codec"), ("STORE", "databse"), ("PUBSUB", "postgers"),
    )),
    ([], "E002", "AYEWORK to be a mapping"),
    ({"PUBSUB": "redis"}, "E010", "REDIS_URL"), ({"PUBSUB": "postgres"}, "E010", "another kind of database"),
    ({"QUEUES": {"bulk": {"DELIVERY": "redis-streams"}}}, "E014", "['QUEUES']['bulk']['DELIVERY']"),
])  # fmt: skip
def test_what_a_message_names(found, given, id, named):
    messages = found(given)
    assert set(messages) == {id}
    assert named in messages[id].msg
    assert messages[id].msg.startswith("AYEWORK cannot be used: ") is (id == "E002")


def test_all_is_said_at_once(found, settings):
    settings.AYEWORK = {"LEASE": "30s", "CONCURRENCY": 4, "RETRY": {"max_retries": 3}}
    first, second = check_settings(None)
    assert (first.id, second.id) == ("ayework.E002", "ayework.E002")
    assert "AYEWORK['LEASE']" in first.msg
    assert "AYEWORK['RETRY']: 'max_retries'" in second.msg
    settings.AYEWORK = {"QQQ": 1, "ZZZ": 2, "LEASE": 30}
    assert [message.id for message in check_settings(None)] == ["ayework.E001"] * 2
    assert set(found({"QQQ": 1, "LEASE": -1})) == {"E001", "E002"}
    assert hint_of(found({"DATABASE": "ledger"})["E003"]) is None
    settings.USE_TZ = False
    assert hint_of(found({})["E004"]) == "Set USE_TZ = True."
    assert set(found({"DATABASE": "x", "QQQ": 1})) == {"E001", "E003", "E004"}
    assert set(found({"LEASE": "x"})) == {"E002", "E004"}


def test_e010_redis_without_its_package(found, monkeypatch):
    monkeypatch.setattr("django_ayework.checks.find_spec", lambda name: None)
    message = found(REDIS)["E010"]
    assert message.msg == "AYEWORK['PUBSUB'] is 'redis', but the package redis is not installed."
    assert hint_of(message) == "Run: pip install django-ayework[redis]."


@pytest.mark.parametrize(("backend", "is_shared"), [
    ("locmem.LocMemCache", False), ("dummy.DummyCache", False), ("filebased.FileBasedCache", False),
    ("redis.RedisCache", True), ("memcached.PyMemcacheCache", True), ("db.DatabaseCache", True),
])  # fmt: skip
def test_w004_a_store_in_a_cache_that_processes_do_not_share(settings, backend, is_shared):
    path = f"django.core.cache.backends.{backend}"
    settings.CACHES = {"default": {"BACKEND": path, "LOCATION": "nowhere"}}
    settings.AYEWORK = {"STORE": "cache"}
    messages = check_settings(None)
    expected = [] if is_shared else [("ayework.W004", True)]
    assert [(message.id, path in message.msg) for message in messages] == expected
    settings.AYEWORK = {"STORE": "local"}
    assert check_settings(None) == [], "other stores do not use the cache"


def test_w005_a_hook_that_is_never_called(settings):
    settings.AYEWORK = {"ON_BACKLOG": print}
    [message] = check_settings(None)
    assert (message.id, message.level) == ("ayework.W005", WARNING)
    assert "BACKLOG_AFTER" in message.msg
    settings.AYEWORK = {"ON_BACKLOG": print, "BACKLOG_AFTER": 60}
    assert check_settings(None) == []


def test_w006_a_setting_beside_the_dictionary(settings):
    settings.AYEWORK_CONCURRENCY = settings.AYEWORK_POLL_INTERVL = settings.AYEWORK_MAX_ATTEMPTS = 4
    settings.AYEWORK_QQQ = "of the project's own"
    messages = {message.msg.split()[2]: message for message in check_settings_beside(None)}
    assert {message.id for message in messages.values()} == {"ayework.W006"}
    assert {name: hint_of(message) for name, message in messages.items()} == {
        "AYEWORK_CONCURRENCY": "Write AYEWORK = {'CONCURRENCY': …} instead.",
        "AYEWORK_POLL_INTERVL": "Did you mean 'POLL_INTERVAL'? It is a key of AYEWORK.",
        "AYEWORK_MAX_ATTEMPTS": "Did you mean 'RETRY'? It is a key of AYEWORK.",
    }
    assert messages["AYEWORK_CONCURRENCY"].msg == (
        "The setting AYEWORK_CONCURRENCY is not read: the settings of django_ayework are in the dictionary "
        "AYEWORK."
    )


@pytest.mark.parametrize(("given", "advice"), [
    ({"LEASE": 9}, "Set STATEMENT_TIMEOUT to 6 or less, or LEASE to 22.5 or more."),
    ({"STATEMENT_TIMEOUT": 60}, "Set STATEMENT_TIMEOUT to 20 or less, or LEASE to 90 or more."),
    ({"LEASE": 9, "STATEMENT_TIMEOUT": 6}, None), ({"LEASE": 9, "STATEMENT_TIMEOUT": None}, None),
])  # fmt: skip
def test_w008_a_statement_may_take_longer_than_a_lease(settings, given, advice):
    settings.AYEWORK = given
    expected = [("ayework.W008", advice)] if advice else []
    assert [(message.id, hint_of(message)) for message in check_settings(None)] == expected


@pytest.mark.parametrize(("engine", "zone", "ids"), [
    *(("sqlite3", zone, []) for zone in (None, "Asia/Tokyo")), ("postgresql", "Europe/Paris", []),
    *(("sqlite3", zone, ["W009"]) for zone in ("Europe/Paris", "America/Santiago")),
])  # fmt: skip
def test_w009_moments_are_stored_in_a_zone_whose_clocks_are_changed(found, engine, zone, ids, monkeypatch):
    if engine == "postgresql":
        pytest.importorskip("psycopg")
    stored = {"ENGINE": f"django.db.backends.{engine}", "NAME": "queue", "TIME_ZONE": zone}
    monkeypatch.setitem(connections.settings, "queue", connections.settings["default"] | stored)
    try:
        assert list(found({"DATABASE": "queue"}, level=WARNING)) == ids
    finally:
        del connections["queue"]


@pytest.mark.parametrize(("app", "given", "hint"), [
    ("cachalot", {}, "Add 'django_ayework' to CACHALOT_UNCACHABLE_APPS."),
    ("cachalot", {"CACHALOT_ONLY_CACHABLE_TABLES": ["django_ayework_work"]}, "Add 'django_ayework' to"),
    ("cachalot", {"CACHALOT_UNCACHABLE_APPS": ["django_ayework"]}, None),
    ("cachalot", {"CACHALOT_ONLY_CACHABLE_APPS": ["auth"]}, None),
    ("cachalot", {"CACHALOT_ENABLED": False}, None),
    ("cacheops", {"CACHEOPS": {"*.*": {"ops": "all"}}}, "Set CACHEOPS['django_ayework.*'] = None."),
    ("cacheops", {"CACHEOPS": {"*.*": {}}, "CACHEOPS_DEFAULTS": {"ops": "get"}}, "Set CACHEOPS["),
    ("cacheops", {"CACHEOPS": {"*.*": {"ops": ()}}}, None), ("cacheops", {}, None),
    ("cacheops", {"CACHEOPS": {"*.*": {"ops": "all"}, "Django_Ayework.*": None}}, None),
    ("other", {"CACHEOPS": {"*.*": {"ops": "all"}}}, None),
])  # fmt: skip
def test_w014_an_app_keeps_the_answers_of_queries_on_works(settings, monkeypatch, app, given, hint):
    monkeypatch.setattr(apps, "is_installed", lambda name: name == app)
    for name, value in given.items():
        setattr(settings, name, value)
    found = [(message.id, hint_of(message)) for message in check_settings(None)]
    assert [id for id, _ in found] == (["ayework.W014"] if hint else [])
    assert all(text.startswith(hint) for _, text in found)


@pytest.mark.django_db
@pytest.mark.parametrize("given", [{"LEASE": -1}, {"DATABASE": "nowhere"}, [], {"ON_EVENT": "no.where"}])
def test_the_check_command_reports_rather_than_crashes(settings, given):
    settings.AYEWORK = given
    with pytest.raises(SystemCheckError, match=r"\(ayework.E00[23]\)"):
        call_command("check", databases=["default"])


PROJECT = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
from django.conf import settings
settings.AYEWORK = {"LEASE": -1, "ID": "nowhere.to.be.found"}
import django
django.setup()
from tests.app.works import add
from django_ayework import schedule
schedule(name="poll", every=30, run=add(a=1, b=2))
from django.core.management import call_command
call_command("check")
"""


def test_a_project_with_an_unusable_setting_starts_far_enough_to_report_it():
    command = [sys.executable, "-c", PROJECT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "SystemCheckError" in done.stderr
    assert "(ayework.E002) AYEWORK cannot be used: expected AYEWORK['LEASE']" in done.stderr
