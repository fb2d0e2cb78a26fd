"""The setting ``AYEWORK``: defaults, merging, the values of each key, and refusals."""

import math
import re
import uuid
from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_ayework import Retry, WorkRequest
from django_ayework.conf import KEYS, READERS, get_settings, unknown_keys
from django_ayework.rules.codec import RichJSON
from django_ayework.rules.retry import RetryPolicy

NO_HOOK = 5


def hook(*args):
    """Something a dotted path leads to."""


class Hook:
    def __call__(self, *args): ...


class Shouting:
    def encode(self, value):
        return str(value).upper()

    def decode(self, text):
        return text


class Shelf:
    """Looks like a Store."""

    get = set = delete = set_if_absent = increment = swap = lambda self, *args: None


class Unmade:
    """A class of a project that cannot be instantiated."""

    def __init__(self):
        raise KeyError("MAIL_HOST")


SHOUTING, SHELF = Shouting(), Shelf()


UNSET = """
pubsub_database redis_url id doer on_event on_error on_failure log_context on_backlog backlog_after
backlog_every accept backpressure unhandled_group metrics_token progress_max_age
"""
HOOKS = ["ON_EVENT", "ON_ERROR", "ON_FAILURE", "LOG_CONTEXT", "ON_BACKLOG", "UNHANDLED_GROUP"]


@pytest.mark.parametrize("given", [{}, None])
def test_every_default(settings, given):
    if given is None:
        if hasattr(settings, "AYEWORK"):
            del settings.AYEWORK
        get_settings.cache_clear()
    else:
        settings.AYEWORK = given

    resolved = dict(vars(get_settings()))
    assert isinstance(resolved.pop("codec"), RichJSON)
    unset = {name for name, value in resolved.items() if value is None}
    assert unset == set(UNSET.split())
    assert {name: value for name, value in resolved.items() if name not in unset} == {
        "database": "default", "store": "database", "pubsub": "auto", "queues": {}, "middleware": (),
        "version": "", "poll_interval": 1.0, "lease": 30.0, "shutdown_grace": 25.0, "statement_timeout": 15.0,
        "concurrency": 8, "skip_queue_concurrency": 4, "max_payload": 1_000_000, "unknown_type_grace": 3600.0,
        "retry": Retry(), "retention": {"success": 86_400, "cancelled": 86_400, "dead": None},
        "strict_return": True,
    }  # fmt: skip


def test_every_default_can_be_written_out(resolved):
    assert set(READERS) == set(KEYS.values())
    defaults = get_settings()
    written = resolved(**{key: getattr(defaults, name) for key, name in KEYS.items()})
    assert vars(written) == vars(defaults)
    for key in (*HOOKS, "ID", "CODEC", "BACKLOG_AFTER", "BACKLOG_EVERY"):
        assert getattr(resolved(**{key: None}), KEYS[key]) == getattr(defaults, KEYS[key])


def test_what_a_partial_retry_or_retention_leaves_out_has_its_default(resolved):
    retry = resolved(RETRY={"attempts": 7, "base": timedelta(minutes=1)}).retry
    assert retry == Retry(attempts=7, base=60)
    assert RetryPolicy.resolve(Retry(base=5), retry) == RetryPolicy(attempts=7, base=5)
    assert RetryPolicy.resolve(retry) == RetryPolicy(attempts=7, base=60, max=60)
    assert resolved(RETRY=Retry(jitter=0)).retry == Retry(jitter=0)
    retention = resolved(RETENTION={"dead": timedelta(days=90), "success": None}).retention
    assert retention == {"success": None, "cancelled": 86_400, "dead": 90 * 86_400}


DURATIONS = ["POLL_INTERVAL", "LEASE", "SHUTDOWN_GRACE", "UNKNOWN_TYPE_GRACE"]
DURATIONS += ["BACKLOG_AFTER", "BACKLOG_EVERY"]


@pytest.mark.parametrize("key", DURATIONS)
def test_durations_are_seconds_or_timedeltas(resolved, key):
    for value in (5, 5.0, timedelta(seconds=5)):
        number = getattr(resolved(**{key: value}), KEYS[key])
        assert (number, type(number)) == (5.0, float)
    if "GRACE" in key:
        assert getattr(resolved(**{key: 0}), KEYS[key]) == 0


@pytest.mark.parametrize("form", ["object", "class", "path of a class", "path of an object"])
def test_stores_and_codecs_are_objects_classes_or_dotted_paths(resolved, form):
    def given(kind, name):
        paths = {"path of a class": kind.__name__, "path of an object": name}
        return f"{__name__}.{paths[form]}" if form in paths else kind if form == "class" else kind()

    assert type(resolved(STORE=given(Shelf, "SHELF")).store).__name__ == "Shelf"
    assert resolved(CODEC=given(Shouting, "SHOUTING")).codec.encode("x") == "X"
    for name in ("database", "cache", "local"):
        assert resolved(STORE=name).store == name


@pytest.mark.parametrize("key", [*HOOKS, "ID"])
@pytest.mark.parametrize("value", [hook, f"{__name__}.hook"])
def test_hooks_are_callables_or_dotted_paths(resolved, key, value):
    found = getattr(resolved(**{key: value}), KEYS[key])
    assert (found.__module__, found.__name__) == (__name__, "hook")


def test_middlewares_are_callables_paths_and_classes_in_order(resolved):
    found = resolved(MIDDLEWARE=[hook, f"{__name__}.hook", Hook, f"{__name__}.Hook"]).middleware
    assert [getattr(one, "__name__", type(one).__name__) for one in found] == ["hook", "hook", "Hook", "Hook"]
    for value in (Hook, f"{__name__}.Hook"):
        assert type(resolved(ON_EVENT=value).on_event).__name__ == "Hook"
    assert resolved(ID="uuid.uuid4").id is uuid.uuid4


def test_ids_follow_the_setting_at_once(settings):
    def made():
        return WorkRequest(type="tests.any", input={}).id

    before = made()
    settings.AYEWORK = {"ID": iter(["mine-1", "mine-2"]).__next__}
    assert [made(), made()] == ["mine-1", "mine-2"]
    settings.AYEWORK = {}
    assert uuid.UUID(before).version == uuid.UUID(made()).version == 7


def test_settings_are_resolved_once_and_follow_overrides_of_the_setting():
    before = get_settings()
    with override_settings(AYEWORK={"CONCURRENCY": 3}):
        assert get_settings().concurrency == 3
        with override_settings(AYEWORK={"CONCURRENCY": 4}):
            assert get_settings().concurrency == 4
        assert get_settings().concurrency == 3
    assert get_settings() == before
    current = get_settings()
    with override_settings(DEBUG=True):
        assert get_settings() is current


WHOLE, SECONDS = "a whole number, {} or more", "0 seconds or more, got: "
PATH = "a callable or the dotted path of one"
MAPPING = "to be a mapping of success, cancelled, dead to seconds (a number), a timedelta"
A_QUEUE = "the dotted path of a Queue"
LIST = "a list of callables or dotted paths"


@pytest.mark.parametrize(("key", "value", "matter"), [
    ("POLL_INTERVAL", 0, "more than 0 seconds, got: 0"), ("POLL_INTERVAL", math.nan, f"{SECONDS}nan"),
    ("POLL_INTERVAL", "1", r"seconds (a number) or a timedelta, got: '1' (str)"),
    ("LEASE", timedelta(0), "more than 0 seconds"), ("LEASE", -1, f"{SECONDS}-1"),
    ("LEASE", None, "got: None"), ("LEASE", True, "got: True (bool)"),
    ("CONCURRENCY", 0, f"{WHOLE.format(1)}, got: 0"), ("CONCURRENCY", 2.5, f"{WHOLE.format(1)}, got: 2.5"),
    ("CONCURRENCY", True, WHOLE.format(1)), ("CONCURRENCY", "8", WHOLE.format(1)),
    ("SKIP_QUEUE_CONCURRENCY", -1, f"{WHOLE.format(0)}, got: -1"),
    ("SKIP_QUEUE_CONCURRENCY", True, f"{WHOLE.format(0)}, got: True"), ("MAX_PAYLOAD", -1, WHOLE.format(1)),
    ("SHUTDOWN_GRACE", -1, f"{SECONDS}-1"), ("SHUTDOWN_GRACE", "long", "got: 'long' (str)"),
    ("UNKNOWN_TYPE_GRACE", math.inf, f"{SECONDS}inf"), ("BACKLOG_AFTER", 0, "more than 0 seconds, got: 0"),
    ("BACKLOG_EVERY", -1, f"{SECONDS}-1"), ("BACKLOG_EVERY", "often", "got: 'often' (str)"),
    ("STORE", "databse", "of a Store, got: 'databse'. Did you mean 'database'?"),
    ("STORE", "redis", "'database', 'cache', 'local' or the dotted path of a Store, got: 'redis'"),
    ("STORE", "nowhere.to.be.found", "nowhere"), ("STORE", None, "to be a Store, got: None"),
    ("STORE", Shouting, "which has no get, set, delete, set_if_absent, increment, swap"),
    ("PUBSUB", "postgers", "of a PubSub, got: 'postgers'. Did you mean 'postgres'?"),
    ("PUBSUB", Shelf, "to be a PubSub, got: <class 'tests.test_conf.Shelf'>, which has no publish"),
    ("QUEUES", ["bulk"], "to be a mapping of names of queues, got: ['bulk']"),
    ("QUEUES", {"bulk": {}}, "['bulk'] to be {'DELIVERY': …}, got: {}"),
    ("QUEUES", {"bulk": {"DELIVERY": "redis"}}, f"'redis-streams', 'local' or {A_QUEUE}, got: 'redis'"),
    ("QUEUES", {"bulk": {"DELIVERY": Shelf}}, "which has no push, pop, ack, put_back"),
    ("REDIS_URL", 6379, "to be an address such as 'redis://host:6379/0', got: 6379"),
    ("STRICT_RETURN", "no", "True or False, got: 'no'"),
    ("RETRY", {"atempts": 3}, "'atempts' is not an option of Retry. Did you mean 'attempts'?"),
    ("RETRY", {"attempts": 0}, "attempts to be a whole number, 1 or more, got: 0"),
    ("RETRY", 5, "to be a mapping such as {'attempts': 3}, or a Retry, got: 5"),
    ("RETENTION", {"sucess": 5}, "got: 'sucess'. Did you mean 'success'?"), ("RETENTION", 86_400, MAPPING),
    ("RETENTION", {"running": 5}, "success, cancelled, dead, got: 'running'"),
    ("RETENTION", {"dead": -5}, f"['dead'] to be {SECONDS}-5"),
    ("ON_EVENT", "nowhere.to.be.found", "nowhere"), ("ON_EVENT", f"{__name__}.missing", "missing"),
    ("ON_ERROR", "undotted", "undotted"), ("ON_FAILURE", 5, f"{PATH}, got: 5"),
    ("UNHANDLED_GROUP", f"{__name__}.NO_HOOK", f"{PATH}, got: "), ("LOG_CONTEXT", 5, f"{PATH}, got: 5"),
    *(("METRICS_TOKEN", token, "printable ASCII") for token in ("s3cret\n", " s3cret", "s\u00e9cret")),
    ("CODEC", f"{__name__}.Unmade", "KeyError: 'MAIL_HOST'"), ("ID", f"{__name__}.Unmade", "'MAIL_HOST'"),
    ("DATABASE", ["default"], "to be an alias of DATABASES, got: ['default']"),
    ("DATABASE", None, "to be an alias of DATABASES, got: None"),
    ("PUBSUB_DATABASE", {}, "to be an alias of DATABASES, got: {}"),
    ("ID", "uuid.NAMESPACE_DNS", "a callable"), ("MIDDLEWARE", hook, f"{LIST}, got: <function hook"),
    ("MIDDLEWARE", "shop.tenancy", f"{LIST}, got: 'shop.tenancy'"),
    ("MIDDLEWARE", [hook, 5], f"[1] to be {PATH}, got: 5"),
    ("MIDDLEWARE", [f"{__name__}.missing"], "missing"),
    ("MIDDLEWARE", [f"{__name__}.NO_HOOK"], f"[0] to be {PATH}, got: "),
    ("CODEC", hook, "encode(value) and decode(text)"), ("CODEC", "json", "json"),
    ("VERSION", 1.2, "to be a text or a function"),
])  # fmt: skip
def test_a_value_that_cannot_be_used_is_refused_naming_the_key(resolved, key, value, matter):
    with pytest.raises(ImproperlyConfigured, match=rf"AYEWORK\['{key}'\].*{re.escape(matter)}"):
        resolved(**{key: value})


@pytest.mark.parametrize("given", [[("LEASE", 5)], "LEASE", 5, None])
def test_the_setting_itself_must_be_a_mapping(settings, given):
    settings.AYEWORK = given
    with pytest.raises(ImproperlyConfigured, match="expected AYEWORK to be a mapping, got: "):
        get_settings()


def test_unknown_keys_are_left_to_the_system_check(resolved, settings):
    assert resolved(LEASES=5).lease == 30.0
    settings.AYEWORK = {"LEASES": 5, "lease": 5, "QQQ": 1, 7: 1, "LEASE": 5}
    meant = "Did you mean 'LEASE'?"
    assert unknown_keys() == {"LEASES": meant, "lease": meant, "QQQ": "", 7: ""}


def test_a_version_is_a_text_or_a_function(resolved):
    assert resolved(VERSION="1.2").version == "1.2"
    assert resolved(VERSION=str).version is str
