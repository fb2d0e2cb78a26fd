"""The page of a work: why with links, the timeline, relatives, options, former inputs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from django_ayework import Context, Retry, dependency, enqueue, retry, work
from django_ayework.admin.work_timeline import drawn, spans_of
from django_ayework.models import Attempt, Work
from django_ayework.store.database import clock
from django_ayework.testing import drain
from django_ayework.testing.factories import (
    AttemptFactory,
    GroupFactory,
    InputRevisionFactory,
    WorkerProcessFactory,
    WorkFactory,
)
from tests.admin.conftest import Page
from tests.admin.kit import address, assert_hides, assert_shows, die
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db


@work(name="page.root")
def root(ctx: Context) -> Any:
    return ctx.queue([add(a=1, b=1), add(a=2, b=2)]).next([add(a=3, b=3)])


@work(name="page.secret", redact=["pin"])
def secret(pin: str, amount: int) -> None:
    raise ValueError("no")


@pytest.mark.parametrize("options", [{"delay": 60}, {"retry": Retry(attempts=1)}], ids=["blocked", "dead"])
def test_why_links_to_the_works_that_hold_a_gate_up(page: Page, options: dict[str, Any]) -> None:
    watched = fail()
    gate = enqueue(dependency(on=[watched], queue=[add(a=1, b=1)]))
    enqueue(watched, **options)
    drain(raises=False)
    why = page("work_change", gate.id).split("Why</h2>")[1].split("</section>")[0]
    assert address("work_change", watched.id) in why


def test_a_work_leads_to_its_parent_children_group_and_gate(page: Page) -> None:
    handle = enqueue(root())
    drain()
    shown = page("work_change", handle.id)
    children = Work.objects.filter(parent_id=handle.id)
    assert children.exists()
    assert all(address("work_change", child.id) in shown for child in children)
    assert address("group_change", handle.id) in shown
    gate = Work.objects.get(type="@work/dependency")
    released = Work.objects.get(parent_id=gate.id)
    of_released = page("work_change", released.id)
    assert "Released by the gate" in of_released or "released by the gate" in of_released
    assert address("work_change", gate.id) in of_released


def test_of_a_huge_group_the_page_does_not_look_for_children(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = GroupFactory(total=20_000)
    parent = WorkFactory(id=group.id, group_id=group.id)
    child = WorkFactory(group_id=group.id, parent_id=parent.id)
    shown = page("work_change", parent.id)
    assert child.id not in shown
    assert "too many to look through" in shown


def test_the_chain_and_the_worker_are_linked(page: Page) -> None:
    worker = WorkerProcessFactory()
    step = WorkFactory(
        chain_id="chain-1", chain_index=2, status="running", worker=worker.id, started_at=clock.now()
    )
    shown = page("work_change", step.id)
    assert_shows(shown, "step 3 of the chain chain-1", address("work_changelist", q="chain-1"))
    assert address("workerprocess_change", worker.id) in shown


def test_former_inputs_are_shown_with_who_and_redacted_as_the_input_is(page: Page) -> None:
    handle = enqueue(secret(pin="PIN-1234", amount=1), retry=Retry(attempts=1))
    drain(raises=False)
    InputRevisionFactory(work_id=handle.id, input='{"pin":"PIN-9876","amount":77}', replaced_by="<b>ann")
    shown = page("work_change", handle.id)
    assert_shows(shown, "Former inputs", "&lt;b&gt;ann", "77")
    assert_hides(shown, "PIN-9876", "PIN-1234")
    retry(handle.id, {"pin": "PIN-5555", "amount": 2})
    assert "PIN-5555" not in page("work_change", handle.id)


def test_the_timeline_shows_each_wait_and_attempt_to_scale() -> None:
    start = clock.now() - timedelta(hours=1)

    def at(seconds: float) -> Any:
        return start + timedelta(seconds=seconds)

    work = WorkFactory(status="success", queued_at=start, started_at=at(80), ended_at=at(100))
    for number, (begin, end, outcome) in enumerate([(10, 30, "failed"), (40, 50, "lost")], 1):
        AttemptFactory(
            work_id=work.id, number=number, started_at=at(begin), ended_at=at(end), outcome=outcome
        )
    spans = spans_of(work, list(Attempt.objects.order_by("number")), clock.now())
    assert [span.text for span in spans] == [
        "waited: 10 s",
        "attempt 1 failed: 20 s",
        "waited for a retry: 10 s",
        "attempt 2 lost: 10 s",
        "waited for a retry: 30 s",
        "success: 20 s",
    ]
    widths = [float(rectangle.width) for rectangle in drawn(spans)]
    assert widths[1] == pytest.approx(2 * widths[0], rel=0.01)
    assert sum(widths) <= 720


@pytest.mark.parametrize(
    ("status", "started", "ended", "kinds"),
    [
        ("pending", None, None, ["waited"]),
        ("scheduled", None, None, ["waited"]),
        ("running", 10, None, ["waited", "running"]),
        ("running", -50, None, ["running"]),
        ("success", 10, 20, ["waited", "success"]),
        ("cancelled", None, 30, ["waited"]),
        ("dead", None, 30, ["waited"]),
    ],
)
def test_every_work_has_a_timeline(
    page: Page, status: str, started: float | None, ended: float | None, kinds: list[str]
) -> None:
    queued = clock.now() - timedelta(seconds=60)
    moments = {
        name: queued + timedelta(seconds=after)
        for name, after in (("started_at", started), ("ended_at", ended))
        if after is not None
    }
    work = WorkFactory(status=status, queued_at=queued, **moments)
    assert [span.kind for span in spans_of(work, [], clock.now())] == kinds
    assert 'role="img"' in page("work_change", work.id)


def test_the_drawing_says_in_words_what_it_shows(page: Page) -> None:
    dead = die()
    shown = page("work_change", dead.id)
    label = shown.split('aria-label="Timeline: ')[1].split('"')[0]
    assert "attempt 3 died" in label
    assert "style=" not in shown.split("ayework-timeline")[1].split("</figure>")[0]


def test_a_page_of_everything_takes_few_queries(operator: Client, django_assert_max_num_queries: Any) -> None:
    handle = enqueue(root())
    drain()
    operator.get(address("work_change", handle.id))
    with django_assert_max_num_queries(16):
        operator.get(address("work_change", handle.id))


def test_attempts_that_succeeded_are_listed_where_the_type_keeps_them(page: Page) -> None:
    @work(name="page.kept", keep_attempts=True)
    def kept() -> None: ...

    handle = enqueue(kept())
    drain()
    shown = page("work_change", handle.id)
    section = shown.split("Attempts</h2>")[1].split("</section>")[0]
    assert "<td>success</td>" in section
    assert "Attempts that did not succeed" not in shown
    spans = spans_of(Work.objects.get(), list(Attempt.objects.all()), clock.now())
    assert [span.kind for span in spans][-1] == "success"
    assert [span.kind for span in spans].count("success") == 1
