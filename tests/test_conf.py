"""The setting ``AYEWORK``: defaults, merging, and what each key takes."""

import uuid
from datetime import timedelta

import pytest
from django.test import override_settings

from django_ayework import Retry, WorkRequest
from django_ayework.conf import KEYS, READERS, get_settings
from django_ayework.rules.codec import RichJSON
from django_ayework.rules.retry import RetryPolicy


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


SHOUTING, SHELF = Shouting(), Shelf()
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
    assert resolved == {
        "database": "default",
        "poll_interval": 1.0,
        "lease": 30.0,
        "store": "database",
        "pubsub": "auto",
        "pubsub_database": None,
        "redis_url": None,
        "concurrency": 8,
        "skip_queue_concurrency": 4,
        "shutdown_grace": 25.0,
        "statement_timeout": 15.0,
        "retry": Retry(),
        "retention": {"success": 86_400, "cancelled": 86_400, "dead": None},
        "strict_return": True,
        "unknown_type_grace": 3600.0,
        "max_payload": 1_000_000,
        "id": None,
        "doer": None,
        "on_event": None,
        "on_error": None,
        "on_failure": None,
        "log_context": None,
        "middleware": (),
        "on_backlog": None,
        "backlog_after": None,
        "backlog_every": None,
        "accept": None,
        "backpressure": None,
        "unhandled_group": None,
    }


def test_every_default_can_be_written_out(resolved):
    defaults = get_settings()
    written = resolved(**{key: getattr(defaults, name) for key, name in KEYS.items()})

    assert vars(written) == vars(defaults)


def test_every_key_is_checked():
    assert set(READERS) == set(KEYS.values())


# Merging


def test_a_partial_retry_leaves_the_rest_to_the_built_in_policy(resolved):
    retry = resolved(RETRY={"attempts": 7, "base": timedelta(minutes=1)}).retry

    assert retry == Retry(attempts=7, base=60)
    assert RetryPolicy.resolve(Retry(base=5), retry) == RetryPolicy(attempts=7, base=5)


def test_retry_may_be_a_retry(resolved):
    assert resolved(RETRY=Retry(jitter=0)).retry == Retry(jitter=0)


def test_a_partial_retention_leaves_the_rest_at_its_default(resolved):
    assert resolved(RETENTION={"dead": timedelta(days=90), "success": None}).retention == {
        "success": None,
        "cancelled": 86_400,
        "dead": 90 * 86_400,
    }


# Durations


@pytest.mark.parametrize(
    "key",
    ["POLL_INTERVAL", "LEASE", "SHUTDOWN_GRACE", "UNKNOWN_TYPE_GRACE", "BACKLOG_AFTER", "BACKLOG_EVERY"],
)
def test_durations_are_seconds_or_timedeltas(resolved, key):
    for value in (5, 5.0, timedelta(seconds=5)):
        number = getattr(resolved(**{key: value}), KEYS[key])
        assert number == 5.0
        assert type(number) is float


@pytest.mark.parametrize("key", ["SHUTDOWN_GRACE", "UNKNOWN_TYPE_GRACE"])
def test_a_grace_may_be_none_at_all(resolved, key):
    assert getattr(resolved(**{key: 0}), KEYS[key]) == 0


@pytest.mark.parametrize("key", ["BACKLOG_AFTER", "BACKLOG_EVERY"])
def test_a_backlog_may_never_be_told_of(resolved, key):
    assert getattr(resolved(**{key: None}), KEYS[key]) is None


# Stores


@pytest.mark.parametrize("name", ["database", "cache", "local"])
def test_a_store_of_ours_has_a_name(resolved, name):
    assert resolved(STORE=name).store == name


@pytest.mark.parametrize("value", [SHELF, Shelf, f"{__name__}.Shelf", f"{__name__}.SHELF"])
def test_a_store_is_an_object_a_class_or_a_dotted_path(resolved, value):
    assert type(resolved(STORE=value).store).__name__ == "Shelf"


# Hooks


@pytest.mark.parametrize("key", [*HOOKS, "ID"])
@pytest.mark.parametrize("value", [hook, f"{__name__}.hook"])
def test_hooks_are_callables_or_dotted_paths(resolved, key, value):
    found = getattr(resolved(**{key: value}), KEYS[key])

    assert (found.__module__, found.__name__) == (__name__, "hook")


@pytest.mark.parametrize("value", [Hook, f"{__name__}.Hook"])
def test_a_class_is_called_to_make_the_hook(resolved, value):
    assert type(resolved(ON_EVENT=value).on_event).__name__ == "Hook"


def test_middlewares_are_callables_paths_and_classes_in_order(resolved):
    found = resolved(MIDDLEWARE=[hook, f"{__name__}.hook", Hook, f"{__name__}.Hook"]).middleware

    assert [getattr(one, "__name__", type(one).__name__) for one in found] == ["hook", "hook", "Hook", "Hook"]


def test_ids_may_be_made_by_a_function_of_the_standard_library(resolved):
    assert resolved(ID="uuid.uuid4").id is uuid.uuid4


def test_ids_follow_the_setting_at_once(settings):
    request = WorkRequest(type="tests.any", input={})
    settings.AYEWORK = {"ID": lambda: "mine"}
    mine = WorkRequest(type="tests.any", input={})
    settings.AYEWORK = {}
    again = WorkRequest(type="tests.any", input={})

    assert mine.id == "mine"
    assert uuid.UUID(request.id).version == uuid.UUID(again.id).version == 7


@pytest.mark.parametrize("value", [SHOUTING, Shouting, f"{__name__}.Shouting", f"{__name__}.SHOUTING"])
def test_a_codec_is_an_object_a_class_or_a_dotted_path(resolved, value):
    assert resolved(CODEC=value).codec.encode("x") == "X"


@pytest.mark.parametrize("key", [*HOOKS, "ID", "CODEC"])
def test_none_is_the_default(resolved, key):
    default = getattr(get_settings(), KEYS[key])

    assert getattr(resolved(**{key: None}), KEYS[key]) == default


# Freshness


def test_settings_are_resolved_once(settings):
    assert get_settings() is get_settings()


def test_a_test_that_overrides_the_setting_sees_it_and_leaves_nothing_behind():
    before = get_settings()
    with override_settings(AYEWORK={"CONCURRENCY": 3}):
        assert get_settings().concurrency == 3
        with override_settings(AYEWORK={"CONCURRENCY": 4}):
            assert get_settings().concurrency == 4
        assert get_settings().concurrency == 3
    assert get_settings() == before


def test_other_settings_do_not_matter():
    before = get_settings()
    with override_settings(DEBUG=True):
        assert get_settings() is before
