"""Something of everything that the desk shows, with hostile texts wherever a text can be stored."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.contrib.admin.utils import quote
from django.urls import reverse

from django_ayework import Context, Retry, dependency, enqueue, enqueue_many, pause, work
from django_ayework.define.requests import GATE_TYPE
from django_ayework.models import DeadLetter, Gate, Group, StoreEntry, Work
from django_ayework.progress import progress_url
from django_ayework.rules.states import Status
from django_ayework.store.database import clock
from django_ayework.testing import drain, factories, time_travel
from tests.app.models import Order

#: What a page must show as it is. Each sets a mark on the window if a browser takes it for markup.
HOSTILE = (
    "<script>window.broken=1</script>",
    "<img src=x onerror=window.broken=1>",
    '"><svg onload=window.broken=1>',
    "'-window.broken=1-'",
    "</textarea></title><script>window.broken=1</script>",
    "{{ 7|add:7 }}{% now 'Y' %}${7*7}",
    "javascript:window.broken=1",
    '<!--<a href="javascript:window.broken=1">x</a>-->',
)
TEXT = " ".join(HOSTILE)


@work(name="desk.fails", retry=Retry(attempts=2, base=1, jitter=0))
def fails(text: str, number: int = 1) -> None:
    raise ValueError(f"{text} {number}")


@work(name="desk.report", schedulable=True)
def report(title: str) -> dict[str, str]:
    return {"title": title}


@work(name="desk.fetches")
def fetches(ctx: Context, pages: int, text: str) -> Any:
    members = [report(title=f"{text} {number}") for number in range(pages)]
    return ctx.queue([*members, dependency(on=members, queue=[report(title="summary"), fails(text=text)])])


@work(name="desk.steps")
def order_steps(ctx: Context, step: int) -> Any:
    return ctx.continue_with(order_steps(step=step + 1)) if step < 3 else {"steps": step}


def run_all() -> None:
    """Run what is due, retries too; time passes."""
    for seconds in (2, 90):
        time_travel(seconds)
        drain(raises=False)


def populate() -> None:
    """Fill the database: each status, a group, gates, a chain, schedules, controls, workers, figures."""
    order = Order.objects.create(reference=TEXT)
    enqueue(fails(text=TEXT), about=order)
    enqueue(order_steps(step=1))
    enqueue(fetches(pages=3, text=TEXT))
    run_all()
    enqueue(report(title="later"), delay=timedelta(hours=3), about=order)
    waiting = enqueue(report(title=TEXT), priority=5)
    enqueue(dependency(on=[waiting], queue=[report(title="after")]))
    enqueue_many([report(title=str(number)) for number in range(3)])
    now = clock.now()
    progress = json.dumps({"done": 3, "total": 10, "note": TEXT})
    leased = {"started_at": now - timedelta(minutes=3), "leased_until": now + timedelta(minutes=10)}
    busy, gone = (enqueue(report(title=title)).id for title in ("busy", "gone"))
    Work.objects.filter(id=busy).update(
        status=Status.RUNNING, attempt=1, worker="worker-1", progress=progress, **leased
    )
    Work.objects.filter(id=gone).update(status=Status.CANCELLED, ended_at=now)
    Work.objects.filter(id=waiting.id).update(queue=TEXT[:64], fairness=TEXT[:64])
    dead = DeadLetter.objects.filter(status=Status.DEAD).values_list("id", flat=True)[0]
    factories.InputRevisionFactory(work_id=dead, input=json.dumps({"text": TEXT}), replaced_by=TEXT[:150])
    factories.FiringFactory(
        schedule=factories.ScheduleFactory(name=TEXT[:128], error=TEXT), status="failed", error=TEXT
    )
    pause(queue="reports")
    factories.WorkControlFactory(name=TEXT[:128])
    factories.WorkerProcessFactory(id="worker-1", name="shop", host=TEXT[:255], queues="default", running=1)
    factories.WorkerProcessFactory(host="lost", seen_at=now - timedelta(minutes=5), trouble=TEXT[:500])
    factories.StoreEntryFactory(key=TEXT[:190], value=TEXT)
    refusals = json.dumps([["some-id", TEXT]])
    factories.BulkActionFactory(created_by=TEXT[:150], report=refusals, expected=7, refused=1, done=3)
    factories.ThroughputFactory(type=TEXT[:128], queue=TEXT[:64], failed=3)


#: The models that have a list, by the names of their addresses.
LISTS = (
    "overview", "gate", "work", "deadletter", "bulkaction", "group", "workcontrol", "schedule",
    "workerprocess", "storeentry",
)  # fmt: skip


def pages() -> dict[str, str]:
    """Return the address of every kind of page of the desk, by name."""

    def page(name: str, *args: Any, **query: str) -> str:
        return reverse(f"admin:django_ayework_{name}", args=args, query=query or None)

    def first(model: str) -> str:
        return page(f"{model}_change", apps.get_model("django_ayework", model).objects.earliest("pk").pk)

    dead = DeadLetter.objects.filter(status=Status.DEAD, type="desk.fails").order_by("id")[0]
    running = Work.objects.get(status=Status.RUNNING)
    step = Work.objects.filter(chain_id__isnull=False).earliest("id")
    done = Work.objects.filter(status=Status.SUCCESS, type="desk.report")[0]
    gate = Gate.objects.filter(status=Status.BLOCKED, type=GATE_TYPE)[0]
    return {model: page(f"{model}_changelist") for model in LISTS} | {
        "index": reverse("admin:app_list", args=["django_ayework"]),
        "dead-work": page("work_change", dead.pk),
        "running-work": page("work_change", running.pk),
        "step-of-a-chain": page("work_change", step.pk),
        "waiting-gate": page("work_change", gate.pk),
        "edit": page("work_edit", dead.pk),
        "run-again": page("work_edit", done.pk),
        "a-group": first("group"),
        "a-schedule": first("schedule"),
        "worker": first("workerprocess"),
        "control": first("workcontrol"),
        "gate-that-waits": page("gate_change", gate.pk),
        "entry": page("storeentry_change", quote(StoreEntry.objects.earliest("key").pk)),
        "progress": progress_url(running, title=TEXT, result_url="/"),
        "progress-of-a-group": progress_url(Group.objects.earliest("id").pk, group=True),
        "add-control": page("workcontrol_add"),
        "add-schedule": page("schedule_add"),
        "history": page("work_history", dead.pk),
        "works-of-a-type": page("work_changelist", type="desk.fails"),
        "works-found": page("work_changelist", q="script"),
        "dead-letters-as-a-list": page("deadletter_list"),
        "bulk-action": first("bulkaction"),
        "a-new-bulk-action": page("bulkaction_new", action="retry", status="dead", type=dead.type),
        "which-bulk-action": page("bulkaction_new", status="dead"),
    }
