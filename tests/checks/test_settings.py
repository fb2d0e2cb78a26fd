"""System checks of the setting ``AYEWORK``."""

import subprocess
import sys

import pytest
from django.core.checks import ERROR, WARNING, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connections

from django_ayework.checks import (
    check_durations,
    check_pubsub,
    check_settings,
    check_settings_beside,
    check_store,
)
from tests.architecture.sources import ROOT
from tests.checks.hints import hint_of


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
    assert found({}) == {}


@pytest.mark.parametrize(
    ("key", "hint"),
    [("CONCURENCY", "Did you mean 'CONCURRENCY'?"), ("lease", "Did you mean 'LEASE'?"), ("QQQ", None)],
)
def test_e001_an_unknown_key_with_the_nearest_one(found, settings, key, hint):
    message = found({key: 4})["E001"]
    assert message.msg == f"AYEWORK has the unknown key {key!r}."
    assert hint_of(message) == hint
    assert set(found({key: 1, "LEASE": -1})) == {"E001", "E002"}
    settings.AYEWORK = {key: 1, "ZZZ": 2, "LEASE": 30}
    assert [message.id for message in check_settings(None)] == ["ayework.E001"] * 2


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"LEASE": -1}, "AYEWORK['LEASE']"),
        ({"RETRY": {"attempts": 0}}, "AYEWORK['RETRY']"),
        ({"RETENTION": 5}, "AYEWORK['RETENTION']"),
        ({"ON_EVENT": "nowhere.to.be.found"}, "AYEWORK['ON_EVENT']"),
        ({"CODEC": "nowhere.Codec"}, "AYEWORK['CODEC']"),
        ({"STORE": "databse"}, "AYEWORK['STORE']"),
        ([], "AYEWORK to be a mapping"),
    ],
)
def test_e002_a_value_that_cannot_be_used(found, given, named):
    message = found(given)["E002"]
    assert message.msg.startswith("AYEWORK cannot be used: ")
    assert named in message.msg


def test_e002_names_each_value_that_cannot_be_used(settings):
    settings.AYEWORK = {"LEASE": "30s", "CONCURRENCY": 4, "RETRY": {"max_retries": 3}}
    first, second = check_settings(None)
    assert (first.id, second.id) == ("ayework.E002", "ayework.E002")
    assert "AYEWORK['LEASE']" in first.msg
    assert "AYEWORK['RETRY']: 'max_retries'" in second.msg


def test_e004_naive_times(settings, found):
    settings.USE_TZ = False
    message = found({})["E004"]
    assert hint_of(message) == "Set USE_TZ = True."
    assert set(found({"DATABASE": "x", "QQQ": 1})) == {"E001", "E003", "E004"}, "all is said at once"


def test_w004_a_store_in_a_cache_that_processes_do_not_share(settings):
    settings.AYEWORK = {"STORE": "cache"}
    backends = {
        "locmem.LocMemCache": True,
        "dummy.DummyCache": True,
        "filebased.FileBasedCache": True,
        "redis.RedisCache": False,
        "memcached.PyMemcacheCache": False,
        "db.DatabaseCache": False,
    }
    warned = {}
    for backend in backends:
        path = f"django.core.cache.backends.{backend}"
        settings.CACHES = {"default": {"BACKEND": path, "LOCATION": "nowhere"}}
        messages = check_store(None)
        warned[backend] = [message.id for message in messages] == ["ayework.W004"]
        assert all(path in message.msg for message in messages)
    assert warned == backends
    settings.AYEWORK = {"STORE": "local"}
    assert check_store(None) == [], "other stores do not use the cache"


def test_w006_a_setting_beside_the_dictionary(settings):
    settings.AYEWORK_CONCURRENCY = 4
    settings.AYEWORK_POLL_INTERVL = 4
    settings.AYEWORK_MAX_ATTEMPTS = 4
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


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"LEASE": 9}, "Set STATEMENT_TIMEOUT to 6 or less, or LEASE to 22.5 or more."),
        ({"STATEMENT_TIMEOUT": 60}, "Set STATEMENT_TIMEOUT to 20 or less, or LEASE to 90 or more."),
        ({"LEASE": 9, "STATEMENT_TIMEOUT": 6}, None),
        ({"LEASE": 9, "STATEMENT_TIMEOUT": None}, None),
    ],
)
def test_w008_a_statement_may_take_longer_than_a_lease(settings, given, advice):
    settings.AYEWORK = given
    found = check_durations(None)
    assert [(message.id, hint_of(message)) for message in found] == (
        [("ayework.W008", advice)] if advice else []
    )


@pytest.mark.parametrize(
    ("engine", "zone", "ids"),
    [
        ("sqlite3", None, []),
        ("sqlite3", "Asia/Tokyo", []),
        ("sqlite3", "Europe/Paris", ["W009"]),
        ("sqlite3", "America/Santiago", ["W009"]),
        ("postgresql", "Europe/Paris", []),
    ],
)
def test_w009_moments_are_stored_in_a_zone_whose_clocks_are_changed(found, engine, zone, ids, monkeypatch):
    if engine == "postgresql":
        pytest.importorskip("psycopg")
    stored = {"ENGINE": f"django.db.backends.{engine}", "NAME": "queue", "TIME_ZONE": zone}
    monkeypatch.setitem(connections.settings, "queue", connections.settings["default"] | stored)
    try:
        assert list(found({"DATABASE": "queue"}, level=WARNING)) == ids
    finally:
        del connections["queue"]


def test_w005_a_hook_that_is_never_called(settings):
    settings.AYEWORK = {"ON_BACKLOG": print}
    [message] = check_store(None)
    assert (message.id, message.level) == ("ayework.W005", WARNING)
    assert "BACKLOG_AFTER" in message.msg
    settings.AYEWORK = {"ON_BACKLOG": print, "BACKLOG_AFTER": 60}
    assert check_store(None) == []


@pytest.mark.django_db
@pytest.mark.parametrize("given", [{"LEASE": -1}, {"DATABASE": "nowhere"}, [], {"ON_EVENT": "no.where"}])
def test_the_check_command_reports_rather_than_crashes(settings, given):
    settings.AYEWORK = given
    with pytest.raises(SystemCheckError, match=r"\(ayework.E00[23]\)"):
        call_command("check", databases=["default"])


def test_a_project_with_an_unusable_setting_starts_far_enough_to_report_it():
    source = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
from django.conf import settings
settings.AYEWORK = {"LEASE": -1, "ID": "nowhere.to.be.found"}
import django
django.setup()
from django.core.management import call_command
call_command("check")
"""
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "SystemCheckError" in done.stderr
    assert "(ayework.E002) AYEWORK cannot be used: expected AYEWORK['LEASE']" in done.stderr


@pytest.mark.parametrize(
    ("key", "id"), [("DATABASE", "E003"), ("PUBSUB_DATABASE", "E009")], ids=lambda part: part
)
def test_an_alias_that_is_not_there(found, key, id):
    message = found({key: "defualt"})[id]
    assert message.msg == f"AYEWORK[{key!r}] is 'defualt', but DATABASES has no such alias."
    assert hint_of(message) == "Did you mean 'default'?"
    assert found({key: "default"}) == {}


def test_e003_without_an_alias_there_is_no_hint(found):
    assert hint_of(found({"DATABASE": None})["E003"]) is None


@pytest.mark.parametrize(
    ("given", "id", "named"),
    [
        ({"PUBSUB": "redis"}, "E010", "REDIS_URL"),
        ({"QUEUES": {"bulk": {"DELIVERY": "redis-streams"}}}, "E014", "['QUEUES']['bulk']['DELIVERY']"),
    ],
    ids=["E010", "E014"],
)
def test_redis_that_nobody_can_find(found, given, id, named):
    assert named in found(given)[id].msg
    assert found({**given, "REDIS_URL": "redis://localhost"}) == {}


def test_e010_redis_without_its_package(found, monkeypatch):
    monkeypatch.setattr("django_ayework.checks.find_spec", lambda name: None)
    message = found({"PUBSUB": "redis", "REDIS_URL": "redis://localhost"})["E010"]
    assert message.msg == "AYEWORK['PUBSUB'] is 'redis', but the package redis is not installed."
    assert hint_of(message) == "Run: pip install django-ayework[redis]."


@pytest.mark.parametrize("url", ["localhost:6379", "http://localhost:6379", "//localhost"])
def test_e010_an_address_that_is_none_of_redis(found, url):
    message = found({"PUBSUB": "redis", "REDIS_URL": url})["E010"]
    assert message.msg == f"AYEWORK['REDIS_URL'] is no address of Redis: {url!r}."


def test_e010_what_does_not_go_with_the_database(found):
    assert "another kind of database" in found({"PUBSUB": "postgres"})["E010"].msg
    assert found({"PUBSUB": "sqlite"}) == {}
    assert found({"PUBSUB": "local"}) == found({"PUBSUB": "polling"}) == {}
    assert set(found({"PUBSUB": "postgers"})) == {"E002"}
    assert check_pubsub(None) == []
