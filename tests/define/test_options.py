"""What a type says about how its works are queued."""

import copy
import dataclasses
import inspect
import pickle
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from django_ayework import Retry, work
from django_ayework.define.options import checked, combined
from django_ayework.errors import AyeworkError, ImproperWork, InvalidOption
from tests.define.declared import step

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SAVED = SimpleNamespace(pk=7, _meta=SimpleNamespace(label_lower="shop.order"))


# Options of a type


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("quue", "queue"), ("prority", "priority"), ("strict_retrun", "strict_return"), ("nmae", "name")],
)
def test_an_unknown_option_is_refused_with_the_nearest_one(wrong, nearest):
    with pytest.raises(TypeError, match=rf"'{wrong}' is not an option of @work. Did you mean '{nearest}'"):
        work(**{wrong: "x"})(lambda: None)


@pytest.mark.parametrize(
    ("foreign", "own"),
    [
        ("retries", "retry=Retry(attempts=…)"),
        ("retires", "retry=Retry(attempts=…)"),
        ("max_attempts", "retry=Retry(attempts=…)"),
        ("time_limit", "'timeout'"),
        ("delay", "enqueue(…, delay=…)"),
        ("countdown", "enqueue(…, delay=…)"),
        ("eta", "enqueue(…, run_at=…)"),
        ("unique", "enqueue(…, dedup=Dedup(key))"),
        ("bind", "a first parameter named ctx"),
        ("cron", "@schedule(…) above @work"),
        ("rate_limit", "doer=rate_limited(…)"),
    ],
)
def test_an_option_named_as_elsewhere_is_refused_with_its_name_here(foreign, own):
    with pytest.raises(TypeError) as refusal:
        work(**{foreign: "x"})(lambda: None)
    assert str(refusal.value) == f"{foreign!r} is not an option of @work. Did you mean {own}?"


@pytest.mark.parametrize(
    ("foreign", "own"),
    [("max_attempts", "attempts"), ("retires", "attempts"), ("delay", "base"), ("atempts", "attempts")],
)
def test_an_unknown_field_of_retry_is_refused_with_the_nearest(foreign, own):
    with pytest.raises(TypeError) as refusal:
        Retry(**{foreign: 5})
    assert str(refusal.value) == f"{foreign!r} is not an option of Retry. Did you mean {own!r}?"


def test_a_field_of_retry_like_no_other_suggests_nothing():
    with pytest.raises(TypeError, match=r"^'zzz' is not an option of Retry\.$"):
        Retry(zzz=5)


def test_a_retry_policy_is_copied_and_pickled():
    policy = Retry(attempts=5, base=timedelta(minutes=1))

    assert copy.deepcopy(policy) == pickle.loads(pickle.dumps(policy)) == policy
    assert dataclasses.replace(policy, attempts=2) == Retry(attempts=2, base=60)


def test_an_unknown_option_is_refused_even_without_a_value():
    with pytest.raises(TypeError, match="'delays' is not an option of @work"):
        work(name="x", delays=None)(lambda: None)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("queue", ""),
        ("queue", "q" * 65),
        ("queue", 5),
        ("fairness", "nul\x00"),
        ("priority", 1.5),
        ("priority", True),
        ("priority", 2**31),
        ("retry", {"attempts": 3}),
    ],
)
def test_values_of_options_are_checked_at_decoration(option, value):
    with pytest.raises(InvalidOption, match=f"expected {option} to be .* got: ") as refusal:
        step(**{option: value})

    assert isinstance(refusal.value, AyeworkError)
    assert isinstance(refusal.value, ValueError)


@pytest.mark.parametrize("option", ["timeout", "expires", "lease"])
def test_durations_are_seconds_or_timedeltas(option):
    assert getattr(step(**{option: timedelta(minutes=1)}).settings, option) == 60.0
    with pytest.raises(ValueError, match=f"expected {option} to be 0 seconds or more, got: -1"):
        step(**{option: -1})
    with pytest.raises(TypeError, match=f"expected {option} to be seconds"):
        step(**{option: "soon"})


def test_the_constants_of_a_type_are_options_of_its_works():
    retry = Retry(attempts=5)
    declared = step(queue="mail", priority=-3, retry=retry, timeout=5, expires=timedelta(hours=1))

    assert declared.constants() == {
        "queue": "mail",
        "priority": -3,
        "retry": retry,
        "timeout": 5.0,
        "expires": 3600.0,
    }


def test_a_type_that_says_nothing_leaves_all_to_others():
    assert step().constants() == {}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            print,
            "expected middleware to be a list of callables or dotted paths, got: <built-in function print>.",
        ),
        (
            "shop.tenancy",
            "expected middleware to be a list of callables or dotted paths, got: 'shop.tenancy'.",
        ),
        ([print, 5], "expected middleware[1] to be a callable or the dotted path of one, got: 5."),
        (["tenancy"], "expected middleware[0] to be a callable or the dotted path of one, got: 'tenancy'."),
    ],
)
def test_middlewares_come_as_a_list_of_callables_or_paths(value, message):
    with pytest.raises(InvalidOption) as refusal:
        step(middleware=value)
    assert str(refusal.value) == message
    assert step(middleware=[print, "shop.tenancy"]).settings.middleware == (print, "shop.tenancy")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("n", "expected redact to be a list of names such as 'card.number', got: 'n'."),
        ([5], "expected redact to have names such as 'card.number', got: 5."),
        (["n."], "expected redact to have names such as 'card.number', got: 'n.'."),
        ([""], "expected redact to have names such as 'card.number', got: ''."),
    ],
)
def test_what_is_redacted_comes_as_a_list_of_paths(value, message):
    with pytest.raises(InvalidOption) as refusal:
        step(redact=value)
    assert str(refusal.value) == message


def test_how_long_ended_works_are_kept_is_said_by_status():
    assert step(retention={"success": timedelta(hours=1), "dead": None}).settings.retention == {
        "success": 3600.0,
        "dead": None,
    }
    assert step().settings.retention is None


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (
            60,
            InvalidOption,
            "expected retention to be a mapping of success, cancelled, dead to seconds (a number), "
            'a timedelta, or None for good, such as {"success": 3600}, got: 60.',
        ),
        (
            {"sucess": 60},
            InvalidOption,
            "expected the keys of retention to be of success, cancelled, dead, got: 'sucess'. "
            "Did you mean 'success'?",
        ),
        ({"dead": -1}, ValueError, "expected retention['dead'] to be 0 seconds or more, got: -1."),
        (
            {"dead": "1 day"},
            TypeError,
            "expected retention['dead'] to be seconds (a number) or a timedelta, got: '1 day' (str).",
        ),
    ],
)
def test_a_retention_that_cannot_be_used_is_refused_where_it_is_declared(value, error, message):
    with pytest.raises(error) as refusal:
        step(retention=value)
    assert str(refusal.value) == message


def test_what_is_redacted_must_be_an_input_for_a_slip_would_show_it():
    with pytest.raises(ImproperWork) as refusal:
        work(name="step", redact=["user", "passwrd.old"])(lambda user, password: None)
    assert str(refusal.value) == (
        "expected redact= of 'step' to name its inputs (user, password), got: 'passwrd.old'. "
        "Did you mean 'password'?"
    )
    assert work(name="step", redact=("a.b",))(lambda **given: None).settings.redact == ("a.b",)


def test_an_async_handler_needs_no_interrupt_and_has_none():
    async def later(): ...

    with pytest.raises(ImproperWork) as refusal:
        work(name="step", interrupt=True)(later)
    assert str(refusal.value).startswith(
        "interrupt=True needs a plain function, and test_an_async_handler_needs_no_interrupt_and_has_none"
        ".<locals>.later() is async: its timeout cancels it for real anyway"
    )
    assert not work(name="step", interrupt=False)(later).settings.interrupt
    with pytest.raises(InvalidOption, match="expected interrupt to be True or False, got: 1"):
        step(interrupt=1)


# options=: computed from the input


def test_options_are_computed_from_the_input():
    seen = []

    def options(**given):
        seen.append(given)
        return {"priority": given["n"], "delay": timedelta(minutes=given["n"])}

    request = step(options=options)(n=3)

    assert seen == [{"n": 3}]
    assert request.options == {"priority": 3, "delay": 180.0}


def test_options_are_computed_from_what_the_handler_will_see_its_defaults_included():
    declared = step(options=lambda n: {"priority": n + 3})

    assert declared().options == {"priority": 3}
    assert declared(n=6).options == {"priority": 9}


def test_no_options_computed_are_none():
    assert step(options=lambda **given: None)().options == {}
    assert step(options=lambda **given: {"queue": None})().options == {}


def test_a_computed_option_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match=r"'prority' is not a queueing option. Did you mean 'priority'"):
        step(options=lambda **given: {"prority": 1})()


@pytest.mark.parametrize(
    ("foreign", "own"),
    [
        ("countdown", "'delay'"),
        ("eta", "'run_at'"),
        ("max_attempts", "retry=Retry(attempts=…)"),
        ("unique_key", "dedup=Dedup(key)"),
        ("task_id", "'id'"),
    ],
)
def test_an_option_of_one_work_named_as_elsewhere_is_refused_with_its_name_here(foreign, own):
    with pytest.raises(TypeError) as refusal:
        checked({foreign: 5})
    assert str(refusal.value) == f"{foreign!r} is not a queueing option. Did you mean {own}?"


def test_an_input_among_the_options_suggests_nothing():
    with pytest.raises(TypeError, match=r"^'a' is not a queueing option\.$"):
        checked({"a": 5})


def test_an_error_while_computing_options_is_the_callers():
    with pytest.raises(ZeroDivisionError):
        step(options=lambda n: {"priority": 1 / n})(n=0)


# Options of one work


@pytest.mark.parametrize(
    ("option", "value", "kept"),
    [
        ("delay", 5, 5.0),
        ("delay", timedelta(minutes=1), 60.0),
        ("run_at", NOON, NOON),
        ("deadline", NOON, NOON),
        ("timeout", 0, 0.0),
        ("expires", 1.5, 1.5),
        ("lease", 9, 9.0),
        ("priority", -(2**31) + 1, -(2**31) + 1),
        ("priority", 0, 0),
        ("queue", "mail", "mail"),
        ("fairness", "customer 7", "customer 7"),
        ("retry", Retry(attempts=2), Retry(attempts=2)),
        ("about", SAVED, ("shop.order", "7")),
        ("about", ("shop.order", "7"), ("shop.order", "7")),  # looked at before
    ],
)
def test_usable_values(option, value, kept):
    assert checked({option: value}) == {option: kept}
    assert checked({option: None}) == {}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("delay", -1),
        ("delay", "5"),
        ("run_at", datetime(2026, 1, 1)),
        ("run_at", 5),
        ("deadline", "tomorrow"),
        ("priority", "high"),
        ("queue", ["mail"]),
        ("fairness", ""),
        ("retry", 3),
        ("about", 7),
        ("about", SimpleNamespace(pk=None, _meta=SAVED._meta)),
        ("about", SimpleNamespace(pk="x" * 65, _meta=SAVED._meta)),
    ],
)
def test_unusable_values_are_refused_naming_the_option(option, value):
    with pytest.raises((TypeError, ValueError), match=f"expected {option} to "):
        checked({option: value})


# Two levels of options


@pytest.mark.parametrize(
    ("given", "lower", "both"),
    [
        ({"priority": 5}, {"priority": 1, "queue": "mail"}, {"priority": 5, "queue": "mail"}),
        ({"priority": 0}, {"priority": 1}, {"priority": 0}),  # zero is a value
        ({}, {"delay": 5.0}, {"delay": 5.0}),
        ({"delay": 5.0}, {"run_at": NOON}, {"delay": 5.0}),  # when to start, said anew
        ({"run_at": NOON}, {"delay": 5.0}, {"run_at": NOON}),
        ({"expires": 5.0}, {"deadline": NOON}, {"expires": 5.0}),  # when to give up, said anew
        ({"deadline": NOON}, {"expires": 5.0}, {"deadline": NOON}),
        (
            {"retry": Retry(jitter=0)},
            {"retry": Retry(base=22, jitter=1)},
            {"retry": Retry(base=22, jitter=0)},
        ),
    ],
)
def test_what_is_given_wins_over_the_level_below(given, lower, both):
    assert combined(given, lower) == both


def test_every_option_of_the_decorator_is_described():
    described = inspect.getdoc(work)

    assert [name for name in step().settings.__dataclass_fields__ if f"``{name}" not in described] == []
