"""Guides and questions: examples run, a handle waits as the reference says, and answers lead further."""

from __future__ import annotations

import re
import sys
import unittest
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.core import serializers

import django_ayework as ayework
from django_ayework import Context, Handle, Retry, dependency, enqueue, work
from django_ayework.models import Work
from django_ayework.ports.pubsub import LocalPubSub
from django_ayework.testing import drain, enqueued, running_worker
from tests.app.models import Order
from tests.app.works import pay
from tests.docs import anchors
from tests.documentation.pages import ROOT, blocks, headings, names, page, python_blocks, table, tables
from tests.fixtures import quick_polls  # noqa: F401
from tests.processes import eventually

PAGE = page("guides/choosing.md")
#: Each example, with the heading it stands under.
HEADINGS = headings(PAGE)
EXAMPLES = dict(zip(HEADINGS, python_blocks(PAGE), strict=True))
NEVER = object()
ROWS = [row[0] for row in table("reference/api.md", "What a handle waits for")]


def run(heading: str) -> None:
    line, source = EXAMPLES[heading]
    exec(compile("\n" * (line - 1) + source, str(PAGE), "exec"), {"__name__": "example"})


def test_the_first_table_leads_to_each_section_and_shows_a_word_of_its_example():
    rows = tables(PAGE.read_text())[0]
    targets = [re.findall(r"\(#(\w+)\)", row[1]) for row in rows]
    assert targets == [[heading.strip("`").lower()] for heading in HEADINGS]
    assert {target for [target] in targets} <= anchors(PAGE)
    for heading, row in zip(HEADINGS, rows, strict=True):
        [shown] = names(row[2])
        words = set(re.findall(r"\w{4,}", shown))
        assert words & set(re.findall(r"\w{4,}", EXAMPLES[heading][1])), heading


@pytest.mark.django_db
@pytest.mark.parametrize("heading", HEADINGS)
def test_the_example_runs_and_only_that_of_an_interval_queues_nothing_in_a_test(heading):
    run(heading)
    assert Work.objects.exists() is (heading != "Interval")
    drain()
    assert set(Work.objects.values_list("status", flat=True)) <= {"success"}


@pytest.mark.django_db
def test_all_examples_run_in_one_process():
    for heading in HEADINGS:
        run(heading)
    drain()
    assert set(Work.objects.values_list("status", flat=True)) == {"success"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick_polls")
def test_workers_queue_the_first_work_of_an_interval():
    run("Interval")
    with running_worker(concurrency=1):
        eventually(lambda: Work.objects.filter(type="shop.sync_stock", status="success").exists())


@work(name="t.waiting.value")
def value(n: int) -> int:
    return n


@work(name="t.waiting.fan_out")
def fan_out(ctx: Context):
    return ctx.queue([value(n=1), value(n=2)])


@work(name="t.waiting.fan_in")
def fan_in(ctx: Context):
    return ctx.queue([value(n=1), value(n=2)]).next(value(n=3))


@work(name="t.waiting.step")
def step(ctx: Context):
    return ctx.continue_with(value(n=2))


@work(name="t.waiting.source", then="t.waiting.value")
def source(ctx: Context) -> int:
    ctx.output({"unit": {"n": 2}})
    return 1


@work(name="t.waiting.failing", retry=Retry(attempts=1))
def failing() -> None:
    raise RuntimeError("no luck")


def gate() -> Handle[Any, Any]:
    watched = value(n=1)
    handle = enqueue(dependency(on=[watched], queue=[value(n=2)]))
    enqueue(watched)
    return handle


#: A work to queue, and for each method: after how many attempts it answers, and what it gives.
CASES = {
    "returns a value": (lambda: enqueue(value(n=1)), (1, 1), (1, 1), (1, 1)),
    "returns `ctx.queue([...])`": (lambda: enqueue(fan_out()), (1, None), (1, None), (3, 2)),
    "returns `ctx.queue([...]).next(...)`": (lambda: enqueue(fan_in()), (1, None), (1, None), (4, 3)),
    "returns `ctx.continue_with(...)`": (lambda: enqueue(step()), (1, None), (2, 2), (2, 2)),
    "has a type with `then=`": (lambda: enqueue(source()), (1, 1), (1, 1), (2, 2)),
    "has `blockers=`": (lambda: enqueue(value(n=2), blockers=[enqueue(value(n=1))]), (2, 2), (2, 2), (2, 2)),
    "is a gate (`dependency(...)`)": (gate, (1, None), (1, None), (2, 2)),
    "is one of `enqueue_many([...], together=True)`": (
        lambda: ayework.enqueue_many([value(n=1), value(n=2)], together=True)[0], (1, 1), (1, 1), (2, 2)
    ),
}  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("row", ROWS)
def test_a_method_answers_after_the_attempts_of_the_table(row):
    assert list(CASES) == ROWS
    queue, *expected = CASES[row]
    handle = queue()
    methods = (handle.result, handle.chain, handle.group)
    answers = [tuple(map(answer, methods))]
    while drain(limit=1).ran:
        answers.append(tuple(map(answer, methods)))
    for given, (attempts, value) in zip(zip(*answers, strict=True), expected, strict=True):
        assert [each is NEVER for each in given[: attempts + 1]] == [True] * attempts + [False]
        assert given[attempts] == value


def answer(wait: Callable[..., Any]) -> Any:
    """Return what a method gives at once, or that it would wait."""
    try:
        return wait(timeout=0)
    except (ayework.WaitTimeout, ayework.WaitInTransaction):
        return NEVER


@pytest.mark.django_db
def test_result_and_chain_raise_for_an_end_without_success_and_group_does_not():
    dead, cancelled = enqueue(failing()), enqueue(value(n=1))
    ayework.cancel(cancelled.id)
    drain(raises=False)
    for method in ("result", "chain"):
        with pytest.raises(ayework.WorkFailed):
            getattr(dead, method)(timeout=0)
        with pytest.raises(ayework.WorkCancelled):
            getattr(cancelled, method)(timeout=0)
    assert (dead.group(timeout=0), cancelled.group(timeout=0)) == (None, None)


ENTRIES = re.findall(r"^### (.+)\n\n((?:(?!^#).*\n)+)", page("faq.md").read_text(), re.MULTILINE)


def test_the_page_has_as_many_questions_as_a_reader_can_look_through():
    questions = headings("faq.md", 3)
    assert questions == [question for question, _ in ENTRIES]
    assert len(set(questions)) == len(questions)
    assert 25 <= len(questions) <= 40
    for start in ("docs/index.md", "README.md"):
        assert re.search(r"\]\((?:docs/)?faq\.md\)", (ROOT / start).read_text()), start


@pytest.mark.parametrize(("question", "answer"), ENTRIES, ids=[question for question, _ in ENTRIES])
def test_a_question_has_an_answer_of_a_few_sentences_that_leads_further(question, answer):
    assert question.endswith("?")
    assert 2 <= len(re.findall(r"[.?!:](?:\s|$)", answer)) <= 8
    links = re.findall(r"\]\(([^)]+)\)", " ".join(answer.split()))
    assert links
    assert not [link for link in links if link.startswith(("http", "#"))]


@pytest.mark.django_db
def test_the_example_of_a_signal_queues_works_for_saved_rows_and_none_for_loaded_ones(monkeypatch):
    [source] = [each for each in blocks("guides/queueing.md", "python") if "enqueue_on(" in each]
    modules = {"shop": {}, "shop.models": {"Order": Order}, "shop.works": {"send_receipt": pay}}
    for name, found in modules.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**found))
    example: dict[str, Any] = {}
    exec(source, example)
    try:
        order = Order.objects.create(reference="A1")
        queued = [(state.type, state.status) for state in enqueued()]
        loaded = serializers.serialize("json", [Order(pk=order.pk + 1, reference="A2")])
        [each.save() for each in serializers.deserialize("json", loaded)]
    finally:
        example["disconnect"]()
    assert Order.objects.count() == 2
    assert [(state.type, state.status) for state in enqueued()] == queued == [("shop.pay", "pending")]


@pytest.mark.parametrize("path", ["guides/testing.md", "operations/delivery.md", "operations/wake-ups.md"])
def test_the_runner_of_django_finds_the_tests_of_a_port_of_ones_own(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.wake_ups", SimpleNamespace(ShopPubSub=LocalPubSub))
    [example] = [block for block in blocks(path, "python") if "Conformance" in block]
    tests = ModuleType("tests_of_a_port")
    exec(example, vars(tests))
    assert unittest.defaultTestLoader.loadTestsFromModule(tests).countTestCases() > 5
