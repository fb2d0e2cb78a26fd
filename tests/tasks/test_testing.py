"""The helpers of ``django_ayework.testing`` take tasks, and the example of the guide runs."""

import functools
import sys
from types import ModuleType

import pytest

from django_ayework import dependency, enqueue, get_handle
from django_ayework.models import Work
from django_ayework.testing import assert_enqueued, assert_not_enqueued, drain, enqueued, faults
from tests.app.works import add
from tests.documentation.pages import blocks
from tests.tasks import kit

pytestmark = [pytest.mark.vendors("sqlite"), pytest.mark.django_db]

ECHO = f"{kit.__name__}.echo"


def test_assertions_take_a_task_or_its_name_and_its_arguments_by_parameter():
    first, _ = kit.add.enqueue(1, b=2), kit.add.enqueue(3)
    for task in (kit.add, f"{kit.__name__}.add"):
        assert assert_enqueued(task, a=1, b=2).id == assert_enqueued(task, b=2).id == first.id
        assert [state.id for state in enqueued(task, a=1)] == [first.id]
        assert_not_enqueued(task, a=2)
    assert [state.id for state in enqueued(a=1, b=2)] == [first.id]
    with pytest.raises(TypeError, match=r"^expected one of the inputs of \S+\.add \(a, b\), got: 'aa'\."):
        assert_enqueued(kit.add, aa=1)


def test_a_context_is_no_argument_and_any_name_may_be_given_to_a_task_that_takes_all():
    kit.with_context.enqueue(5)
    assert_enqueued(kit.with_context, number=5)
    with pytest.raises(TypeError, match=r"with_context \(number\), got: 'context'"):
        assert_enqueued(kit.with_context, context=5)
    kit.echo.enqueue(1, 2, order=7)
    assert_enqueued(kit.echo, order=7)
    Work.objects.filter(type=ECHO).update(input="{}")
    assert_not_enqueued(kit.echo, order=7)


def test_what_is_no_task_of_this_backend_is_refused():
    for other in (functools.partial(len), kit.add.func):
        with pytest.raises(TypeError, match=r"^expected a type of work or its name"):
            assert_enqueued(other)


def test_a_gate_and_blockers_wait_for_a_task_and_cannot_queue_one():
    result = kit.add.enqueue(1)
    after = add(a=1, b=2)
    enqueue(dependency(on=[result], queue=[after]))
    blocked = enqueue(add(a=3, b=4), blockers=[result])
    assert blocked.state().status == "blocked" and get_handle(after.id).state() is None
    drain()
    assert (blocked.result(timeout=0), get_handle(after.id).result(timeout=0)) == (7, 3)
    with pytest.raises(TypeError, match=r"\. A task of Django is queued by its own enqueue\(…\)\."):
        dependency(on=[result], queue=[kit.add])


def test_faults_take_a_task():
    result = kit.fail_twice.enqueue("faults")
    with faults.deliver_twice(kit.fail_twice) as met:
        drain(raises=False)
    assert met == [result.id]


def test_the_example_of_the_guide_runs(monkeypatch):
    for name in ("shop", "shop.tasks"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sources = [each.replace("django.tasks", kit.NAME) for each in blocks("guides/django-tasks.md", "python")]
    [declared] = [each for each in sources if "def email_users" in each]
    exec(declared, vars(sys.modules["shop.tasks"]))
    [example] = [each for each in sources if each.startswith("# shop/tests.py")]
    space: dict = {"__name__": "shop.tests"}
    exec(example, space)
    [test] = [value for name, value in space.items() if name.startswith("test_")]
    test(db=None)
    assert Work.objects.get().status == "success"
