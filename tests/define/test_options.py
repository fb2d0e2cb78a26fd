"""What a type says about how its works are queued."""

import copy
import dataclasses
import functools
import inspect
import pickle
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from django_ayework import Retry, batch_work, work
from django_ayework.define.options import checked
from django_ayework.errors import AyeworkError, ImproperWork, InvalidOption
from tests.define.declared import step


def declare(**options):
    work(**options)(lambda: None)


def queue(**options):
    checked(options)


ATTEMPTS = "retry=Retry(attempts=…)"
#: What is said instead of a name that is not known, by where it was given.
FOREIGN = {
    "an option of @work": {
        "quue": "'queue'", "prority": "'priority'", "strict_retrun": "'strict_return'", "nmae": "'name'",
        "retries": ATTEMPTS, "retires": ATTEMPTS, "max_attempts": ATTEMPTS, "time_limit": "'timeout'",
        "delay": "enqueue(…, delay=…)", "countdown": "enqueue(…, delay=…)", "eta": "enqueue(…, run_at=…)",
        "unique": "enqueue(…, dedup=Dedup(key))", "bind": "a first parameter named ctx",
        "cron": "@schedule(…) above @work", "rate_limit": "doer=rate_limited(…)",
        "autoretry_for": "'on_failure'", "default_retry_delay": "retry=Retry(base=…)",
        "acks_late": "no option (works are acknowledged when they end), "
        "or retry=Retry(attempts=1) for at most once",
    },
    "an option of Retry": {
        "max_attempts": "'attempts'", "retires": "'attempts'", "delay": "'base'", "atempts": "'attempts'",
        "on": "@work(on_failure=…)", "zzz": None,
    },
    "a queueing option": {
        "prority": "'priority'", "at": "'run_at'", "countdown": "'delay'", "eta": "'run_at'",
        "max_attempts": ATTEMPTS, "unique_key": "dedup=Dedup(key)", "task_id": "'id'",
        "retry_backoff_max": "retry=Retry(max=…)", "link": "ctx.queue([…]).next(…)", "a": None,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("use", "what"),
    [(declare, "an option of @work"), (Retry, "an option of Retry"), (queue, "a queueing option")],
)
def test_an_unknown_option_is_refused_with_the_nearest_or_its_name_here(use, what):
    for foreign, own in FOREIGN[what].items():
        with pytest.raises(TypeError) as refusal:
            use(**{foreign: 5})
        assert str(refusal.value) == f"{foreign!r} is not {what}." + (f" Did you mean {own}?" if own else "")


def on_failure_of_celery(self, exc, task_id, args, kwargs, einfo): ...


@pytest.mark.parametrize(("option", "takes", "hook"), [
    ("on_failure", "(exception, info)", on_failure_of_celery), ("on_event", "(event)", lambda: None),
    ("log_context", "(input, type)", lambda input: None), ("on_failure", "(exception, info)", 5),
])  # fmt: skip
def test_a_hook_that_cannot_take_its_arguments_is_refused(option, takes, hook):
    expected = f"expected {option} to be a function that takes {takes}, or the dotted path of one, got: "
    for decorate in (work, batch_work) if option != "log_context" else (work,):
        with pytest.raises(InvalidOption, match=re.escape(f"{expected}{hook!r}")) as refusal:
            decorate(**{option: hook})(lambda items: items)
    assert callable(hook) or str(refusal.value).endswith("got: 5.")
    if hook is on_failure_of_celery:
        assert str(refusal.value).endswith(", which takes (self, exc, task_id, args, kwargs, einfo).")


def test_a_hook_that_takes_its_arguments_or_hides_its_signature_is_accepted():
    def narrow(error): ...

    @functools.wraps(narrow)
    def wrapped(error, info): ...

    for hook in (wrapped, dict, print, "shop.hooks.advise", lambda *all: None, lambda a, b, c=0: None):
        assert step(on_failure=hook).settings.on_failure is hook


@pytest.mark.parametrize(("option", "own"), [("expires", "deadline"), ("delay", "run_at")])
def test_a_moment_instead_of_a_duration_is_refused_with_the_option_that_takes_one(option, own):
    with pytest.raises(TypeError, match=rf"\(datetime\)\. Did you mean '{own}'\?"):
        checked({option: datetime(2026, 1, 1, tzinfo=UTC)})


def test_a_number_instead_of_a_retry_policy_or_without_its_name_is_refused_with_an_example():
    with pytest.raises(InvalidOption, match=r"a Retry\(\.\.\.\), such as Retry\(attempts=5\), got: 5\."):
        checked({"retry": 5})
    with pytest.raises(TypeError, match=r"^5 is not an option of Retry\. Did you mean attempts=5\?"):
        Retry(5)  # type: ignore[misc]  # pyright: ignore[reportCallIssue]


def test_a_retry_policy_is_copied_and_pickled():
    policy = Retry(attempts=5, base=timedelta(minutes=1))
    assert copy.deepcopy(policy) == pickle.loads(pickle.dumps(policy)) == policy
    assert dataclasses.replace(policy, attempts=2) == Retry(attempts=2, base=60)


@pytest.mark.parametrize(("option", "values"), [
    ("queue", ["", "q" * 65, 5]), ("fairness", ["nul\x00"]), ("priority", [1.5, True, 2**31]),
    ("retry", [{"attempts": 3}]), ("order", ["tme", 5]),
])  # fmt: skip
def test_values_of_options_are_checked_at_decoration(option, values):
    for value in values:
        with pytest.raises(InvalidOption, match=f"expected {option} to be .* got: ") as refusal:
            step(**{option: value})
        assert isinstance(refusal.value, AyeworkError) and isinstance(refusal.value, ValueError)


def test_checked_options_may_be_checked_again():
    saved = SimpleNamespace(pk=7, _meta=SimpleNamespace(label_lower="shop.order"))
    longest = {"fairness": "f" * 64, "priority": 2**31 - 1}
    given = checked({"about": saved, "delay": 5, "queue": None, **longest})
    assert checked(given) == given == {"about": ("shop.order", "7"), "delay": 5.0, **longest}


@pytest.mark.parametrize("option", ["timeout", "expires", "lease", "retention['dead']"])
def test_durations_are_seconds_or_timedeltas(option):
    def declared(value):
        return step(retention={"dead": value}) if "[" in option else step(**{option: value})

    found = declared(timedelta(minutes=1)).settings
    assert (found.retention["dead"] if "[" in option else getattr(found, option)) == 60.0
    with pytest.raises(ValueError, match=re.escape(f"expected {option} to be 0 seconds or more, got: -1")):
        declared(-1)
    with pytest.raises(TypeError, match=re.escape(f"expected {option} to be seconds")):
        declared("soon")


def test_the_constants_of_a_type_are_options_of_its_works():
    given = {"queue": "mail", "priority": -3, "retry": Retry(attempts=5), "timeout": 5.0}
    assert step(**given, expires=timedelta(hours=1)).constants == given | {"expires": 3600.0}
    assert step().constants == {}


LIST = "middleware to be a list of callables or dotted paths"
PATH = "to be a callable or the dotted path of one"
LIST_OF_NAMES, NAMES = "redact to be a list of names", "redact to have names"
MAPPING = "retention to be a mapping of success, cancelled, dead to seconds (a number), a timedelta, or None"
KEYS = "the keys of retention to be of success, cancelled, dead"


@pytest.mark.parametrize(("option", "value", "message"), [
    ("middleware", print, f"{LIST}, got: <built-in function print>."),
    ("middleware", "shop.tenancy", f"{LIST}, got: 'shop.tenancy'."),
    ("middleware", [print, 5], f"middleware[1] {PATH}, got: 5."),
    ("middleware", ["tenancy"], f"middleware[0] {PATH}, got: 'tenancy'."),
    ("options", {"queue": "mail"}, "options to be a function of the input, got: {'queue': 'mail'}."),
    ("redact", "n", f"{LIST_OF_NAMES} such as 'card.number', got: 'n'."),
    *(("redact", [name], f"{NAMES} such as 'card.number', got: {name!r}.") for name in (5, "n.", "")),
    ("retention", 60, f'{MAPPING} for good, such as {{"success": 3600}}, got: 60.'),
    ("retention", {"sucess": 60}, f"{KEYS}, got: 'sucess'. Did you mean 'success'?"),
])  # fmt: skip
def test_a_list_or_mapping_that_cannot_be_used_is_refused_where_it_is_declared(option, value, message):
    with pytest.raises(InvalidOption) as refusal:
        step(**{option: value})
    assert str(refusal.value) == f"expected {message}"


def test_lists_and_mappings_are_kept_as_plain_values():
    assert step(middleware=[print, "shop.tenancy"]).settings.middleware == (print, "shop.tenancy")
    retention = {"success": timedelta(hours=1), "dead": None}
    assert step(retention=retention).settings.retention == {"success": 3600.0, "dead": None}
    assert step().settings.retention is None


def test_what_is_redacted_must_be_an_input():
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
        ".<locals>.later() is async: its timeout cancels it without this option"
    )
    assert not work(name="step", interrupt=False)(later).settings.interrupt
    with pytest.raises(InvalidOption, match="expected interrupt to be True or False, got: 1"):
        step(interrupt=1)


def test_options_are_computed_from_the_input_its_defaults_included():
    seen = []

    def options(**given):
        seen.append(given)
        return {"priority": given["n"], "delay": timedelta(minutes=given["n"]), "queue": None}

    assert step(options=options)(n=3).options == {"priority": 3, "delay": 180.0}
    assert seen == [{"n": 3}]
    assert step(options=lambda n: {"priority": n + 3})().options == {"priority": 3}
    assert step(options=lambda **given: None)().options == {}
    with pytest.raises(TypeError, match=r"'prority' is not a queueing option. Did you mean 'priority'"):
        step(options=lambda **given: {"prority": 1})()
    with pytest.raises(ZeroDivisionError):
        step(options=lambda n: {"priority": 1 / n})(n=0)


def test_every_option_of_the_decorator_is_described():
    described = inspect.getdoc(work)
    assert [name for name in step().settings.__dataclass_fields__ if f"``{name}" not in described] == []
