"""What ``AYEWORK`` cannot be set to: a value is refused by its key, an unknown key is left to the checks."""

import math
import re
from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_ayework.conf import get_settings, unknown_keys
from tests.test_conf import Shelf, Shouting, hook

NO_HOOK = 5


@pytest.mark.parametrize(
    ("key", "value", "matter"),
    [
        ("POLL_INTERVAL", 0, "greater than 0, got: 0"),
        ("POLL_INTERVAL", "1", r"seconds (a number) or a timedelta, got: '1' (str)"),
        ("POLL_INTERVAL", math.nan, "0 seconds or more, got: nan"),
        ("LEASE", timedelta(0), "greater than 0"),
        ("LEASE", -1, "0 seconds or more, got: -1"),
        ("LEASE", None, "got: None"),
        ("LEASE", True, "got: True (bool)"),
        ("CONCURRENCY", 0, "a whole number, 1 or more, got: 0"),
        ("CONCURRENCY", 2.5, "a whole number, 1 or more, got: 2.5"),
        ("CONCURRENCY", True, "a whole number, 1 or more"),
        ("CONCURRENCY", "8", "a whole number, 1 or more"),
        ("SKIP_QUEUE_CONCURRENCY", -1, "a whole number, 0 or more, got: -1"),
        ("SKIP_QUEUE_CONCURRENCY", True, "a whole number, 0 or more, got: True"),
        ("MAX_PAYLOAD", -1, "a whole number, 1 or more"),
        ("SHUTDOWN_GRACE", -1, "0 seconds or more, got: -1"),
        ("SHUTDOWN_GRACE", "long", "got: 'long' (str)"),
        ("UNKNOWN_TYPE_GRACE", math.inf, "0 seconds or more, got: inf"),
        ("BACKLOG_AFTER", 0, "greater than 0, got: 0"),
        ("BACKLOG_EVERY", -1, "0 seconds or more, got: -1"),
        ("BACKLOG_EVERY", "often", "got: 'often' (str)"),
        ("STORE", "databse", "of a Store, got: 'databse'. Did you mean 'database'?"),
        ("STORE", "redis", "'database', 'cache', 'local' or the dotted path of a Store, got: 'redis'"),
        ("STORE", "nowhere.to.be.found", "nowhere"),
        ("STORE", Shouting, "which has no get, set, delete, set_if_absent, increment, swap"),
        ("STORE", None, "to be a Store, got: None"),
        ("PUBSUB", "postgers", "of a PubSub, got: 'postgers'. Did you mean 'postgres'?"),
        ("PUBSUB", Shelf, "to be a PubSub, got: <class 'tests.test_conf.Shelf'>, which has no publish"),
        ("REDIS_URL", 6379, "to be an address such as 'redis://host:6379/0', got: 6379"),
        ("STRICT_RETURN", "no", "True or False, got: 'no'"),
        ("RETRY", {"atempts": 3}, "'atempts' is not an option of Retry. Did you mean 'attempts'?"),
        ("RETRY", {"attempts": 0}, "attempts to be a whole number, 1 or more, got: 0"),
        ("RETRY", 5, "must be a mapping"),
        ("RETENTION", {"sucess": 5}, "got: 'sucess'. Did you mean 'success'?"),
        ("RETENTION", {"running": 5}, "success, cancelled, dead, got: 'running'"),
        ("RETENTION", {"dead": -5}, "['dead'] to be 0 seconds or more, got: -5"),
        (
            "RETENTION",
            86_400,
            "to be a mapping of success, cancelled, dead to seconds (a number), a timedelta",
        ),
        ("ON_EVENT", "nowhere.to.be.found", "nowhere"),
        ("ON_EVENT", f"{__name__}.missing", "missing"),
        ("ON_ERROR", "undotted", "undotted"),
        ("ON_FAILURE", 5, "a callable or the dotted path of one, got: 5"),
        ("UNHANDLED_GROUP", f"{__name__}.NO_HOOK", "a callable or the dotted path of one, got: "),
        ("ID", "uuid.NAMESPACE_DNS", "a callable"),
        ("LOG_CONTEXT", 5, "a callable or the dotted path of one, got: 5"),
        ("MIDDLEWARE", hook, "a list of callables or dotted paths, got: <function hook"),
        ("MIDDLEWARE", "shop.tenancy", "a list of callables or dotted paths, got: 'shop.tenancy'"),
        ("MIDDLEWARE", [hook, 5], "[1] to be a callable or the dotted path of one, got: 5"),
        ("MIDDLEWARE", [f"{__name__}.missing"], "missing"),
        ("MIDDLEWARE", [f"{__name__}.NO_HOOK"], "[0] to be a callable or the dotted path of one, got: "),
        ("CODEC", hook, "encode(value) and decode(text)"),
        ("CODEC", "json", "json"),
    ],
)
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

    assert unknown_keys() == {
        "LEASES": "Did you mean 'LEASE'?",
        "lease": "Did you mean 'LEASE'?",
        "QQQ": "",
        7: "",
    }
