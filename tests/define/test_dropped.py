"""A work that is built and dropped is reported with its line; one that is kept or used is not."""

import contextlib
import copy
import gc
import pickle
import subprocess
import sys
import warnings

import pytest
from django.db import transaction

from django_ayework import NeverEnqueued, aenqueue, dependency, enqueue, enqueue_many, schedule, work
from django_ayework.define.requests import watch
from django_ayework.models import Work
from django_ayework.testing import perform
from tests.app.works import add
from tests.architecture.sources import ROOT
from tests.define.declared import context

pytestmark = pytest.mark.vendors("sqlite")


@pytest.fixture
def warned():
    """The warnings that were given while the test ran."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NeverEnqueued)
        yield caught


def line_of(function, number):
    return function.__code__.co_firstlineno + number


def test_a_work_that_is_built_and_dropped_is_reported_with_its_line(warned):
    def view():
        add(a=1, b=2)

    view()
    [warning] = warned
    message = "the work 'shop.add' was built and never enqueued; write enqueue(…) around it."
    assert (str(warning.message), warning.category) == (message, NeverEnqueued)
    assert (warning.filename, warning.lineno) == (__file__, line_of(view, 1))
    assert issubclass(NeverEnqueued, ResourceWarning)


def returned():
    return add(a=1, b=2)


@pytest.mark.parametrize("source", [
    "for _ in range(1):\n add(a=1, b=2)", "True and add(a=1, b=2)", "returned()", "(lambda: add(a=1, b=2))()",
    "dependency([], [])",
])  # fmt: skip
def test_ways_to_drop_a_work(warned, source):
    exec(source, globals())
    assert [warning.category for warning in warned] == [NeverEnqueued]


@pytest.mark.django_db
def test_a_callback_of_a_commit_that_drops_a_work(warned, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        transaction.on_commit(lambda: add(a=1, b=2))
    assert len(warned) == 1


KEPT = []


def built_and_kept():
    KEPT.append(add(a=1, b=2))
    KEPT.pop()


def raise_around():
    request = add(a=1, b=2)
    raise ValueError(request.id)


def built_and_returned_after_use():
    request = add(a=1, b=2)
    enqueue(request)
    return request


@pytest.mark.django_db
def test_works_that_are_used_kept_or_raised_around_are_not_reported(warned):
    ctx = context()
    enqueue(add(a=1, b=2))
    add.enqueue(a=1, b=2)
    enqueue("shop.add", {"a": 1, "b": 2})
    enqueue_many([add(a=1, b=2), add(a=3, b=4)])
    enqueue_many(add(a=n, b=0) for n in range(3))
    enqueue(dependency(on=[add(a=1, b=2)], queue=[add(a=3, b=4)], condition="all-done"))
    built_and_returned_after_use()
    ctx.queue([add(a=1, b=2), [add(a=3, b=4)]]).next([add(a=5, b=6)])
    ctx.continue_with(add(a=1, b=2))
    schedule(name="t.dropped", every=60, run=add(a=1, b=2)).cancel()
    perform(add(a=1, b=2))
    kept = [add(a=1, b=2) for _ in range(3)]
    kept.clear()
    assigned = add(a=1, b=2)
    assert add(a=1, b=2).id != assigned.id
    del assigned
    _ = add(a=1, b=2)
    copy.copy(add(a=1, b=2)).id  # noqa: B018
    copy.deepcopy(add(a=1, b=2)).id  # noqa: B018
    pickle.loads(pickle.dumps(add(a=1, b=2))).id  # noqa: B018
    with pytest.raises(ValueError, match="-"):
        raise_around()
    with pytest.raises(TypeError):
        enqueue(add(a=1, b=2), dealy=5)
    with contextlib.suppress(ValueError):
        raise_around()
    kept.extend(map(add, [1], [2]))
    built_and_kept()
    gc.collect()
    assert [str(warning.message) for warning in warned] == []


HANDLERS = ["plain", "with_context", "later", "forgets_to_await", "forgets_to_await_the_call_of_a_type"]


def handler_that_drops(kind):
    def plain():
        add(a=1, b=2)

    def with_context(ctx):
        add(a=1, b=2)
        return ctx.result(5)

    async def later():
        add(a=1, b=2)

    async def forgets_to_await():
        aenqueue(add(a=1, b=2))

    async def forgets_to_await_the_call_of_a_type():
        add.aenqueue(a=1, b=2)

    return locals()[kind]


@pytest.mark.django_db
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("kind", HANDLERS)
def test_a_handler_that_drops_a_work_fails_its_attempt(drain, warned, kind, strict):
    handler = handler_that_drops(kind)
    kind = work(name=f"t.dropped.{kind}.{strict}", strict_return=strict)(handler)
    handle = enqueue(kind())
    drain(limit=1, raises=False)
    assert not Work.objects.filter(type="shop.add").exists()
    assert [warning for warning in warned if warning.category is not RuntimeWarning] == []
    if strict:
        start = f"InvalidInstruction: the handler of {kind.name!r} built the work 'shop.add' ("
        end = ") that was not queued; write enqueue(…) or await aenqueue(…) around it, "
        end += "or put it into the list of a returned ctx.queue(…)."
        place = handle.state().last_error.removeprefix(start).removesuffix(end)
        assert handle.state().last_error == start + place + end
        assert place == f"{__name__}, line {line_of(handler, 1)}"
        assert handle.state().status == "scheduled"
    else:
        assert handle.state().status == "success"
    assert watch.dropped == {}


@pytest.mark.django_db
def test_a_handler_that_drops_a_work_and_raises_fails_by_what_it_raised(drain):
    @work(name="t.dropped.raises")
    def raises():
        add(a=1, b=2)
        raise ValueError("first")

    handle = enqueue(raises())
    drain(limit=1, raises=False)
    assert handle.state().last_error == "ValueError: first"
    assert watch.dropped == {}


PROJECT = """
import sys, warnings
from django.conf import settings
apps = ["django.contrib.contenttypes", "django_ayework"]
settings.configure(DEBUG=sys.argv[1] == "debug", INSTALLED_APPS=apps, USE_TZ=True)
import django
django.setup()
from django_ayework import work
@work(name="shop.send")
def send(): ...
send()
print("done")
"""


@pytest.mark.parametrize(("options", "mode", "shown"), [
    ([], "debug", "<string>:11: NeverEnqueued"), ([], "production", ""),
    (["-W", "ignore::ResourceWarning"], "debug", ""),
    (["-W", "error"], "debug", "Exception ignored "),
    (["-W", "ignore::DeprecationWarning"], "debug", "NeverEnqueued"),
])  # fmt: skip
def test_the_warning_is_shown_in_debug_unless_the_user_says_otherwise(options, mode, shown):
    command = [sys.executable, *options, "-c", PROJECT, mode]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout == "done\n", done.stderr
    assert shown in done.stderr
    assert ("NeverEnqueued" in done.stderr) == bool(shown)
