"""The pages of works, gates and groups."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.contrib.admin.utils import quote
from django.urls import reverse

from django_ayework import Context, Count, Retry, dependency, enqueue, enqueue_many, retry, work
from django_ayework.admin.pages import SHOWN, readable
from django_ayework.admin.work_timeline import drawn, spans_of
from django_ayework.define.requests import GATE_TYPE
from django_ayework.define.types import Registry
from django_ayework.models import Attempt, Work
from django_ayework.rules.codec import RichJSON
from django_ayework.rules.states import Status
from django_ayework.store.database import clock
from django_ayework.testing import drain, factories, time_travel
from django_ayework.testing.factories import AttemptFactory, GroupFactory, WaiterFactory, WorkFactory
from example_project.audit.models import Audit
from tests.admin.kit import address, assert_hides, assert_shows, die, hide, ids_on
from tests.app.models import Order
from tests.app.works import add, fail, pay
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
WORK = "work_change"
#: The models that have pages, and buttons of these.
ADMINS = {
    "work": ["retry", "edit"],
    "deadletter": ["retry"],
    "gate": [],
    "group": ["cancel", "live"],
    "workerprocess": ["quiet", "live"],
    "bulkaction": ["stop"],
    "schedule": ["pause", "delete"],
    "workcontrol": [],
    "storeentry": [],
}


@work(name="tests.echo")
def echo(value: object) -> object:
    return value


@work(name="page.root")
def root(ctx: Context):
    return ctx.queue([add(a=1, b=1), add(a=2, b=2)]).next([add(a=3, b=3)])


@work(name="page.secret", redact=["pin"])
def secret(pin: str, amount: int) -> None:
    raise ValueError("no")


@work(name="page.kept", keep_attempts=True)
def kept() -> None: ...


def section(text, title):
    """Return the part of a page under a heading."""
    return text.split(f"{title}</h2>")[1].split("</section>")[0]


# Values


def test_input_and_result_are_laid_out_or_shown_as_they_are(page):
    handle = enqueue(echo(value={"price": Decimal("4.50"), "at": datetime(2026, 1, 2, tzinfo=UTC)}))
    drain()
    shown = page(WORK, handle.id)
    assert shown.count("&quot;price&quot;: &quot;4.50&quot;") == 2
    assert "&quot;at&quot;: &quot;2026-01-02 00:00:00+00:00&quot;" in shown
    assert "$ayework" not in shown
    assert "broken \\ud800 text" in page(WORK, enqueue(echo(value="broken \ud800 text")).id)
    shown = page(WORK, WorkFactory(input="{not json", result='{"$ayework":"no-such-tag","value":1}').id)
    assert_shows(shown, "{not json", "no-such-tag")
    assert readable(RichJSON().encode({(1, 2): {3}}), RichJSON()) == "{(1, 2): {3}}"


def test_a_long_value_and_many_attempts_are_cut(page):
    handle = enqueue(echo(value="x" * (SHOWN + 5000)))
    value = readable(Work.objects.get().input, RichJSON())
    begun = clock.now()
    for number in range(60):  # the number begins anew with each retry by hand
        at = begun + timedelta(seconds=number)
        AttemptFactory(work_id=handle.id, number=number % 30, error=f"try {number}.", ended_at=at)
    shown = page(WORK, handle.id)
    assert_shows(shown, "x" * (SHOWN - 100), f"The first {SHOWN} of {len(value)} characters")
    assert_shows(shown, "try 59.", "try 10.", "The last 50 attempts.")
    assert_hides(shown, "x" * SHOWN, "try 9.")


def test_options_are_shown_in_words(page):
    policy = Retry(attempts=5, base=90, factor=3, max=7200, jitter=0.25)
    handle = enqueue(add(a=1, b=2), retry=policy, timeout=0.5, expires=86400, lease=45)
    shown = section(page(WORK, handle.id), "Options as resolved")
    words = "5 attempts; the first wait is 1 min 30 s, each next one 3 times as long, at most 2 h"
    assert_shows(shown, words, "25 %", ">500 ms<", ">1 d<", "45 s")


def test_former_inputs_are_shown_with_who_and_redacted_as_the_input_is(page):
    handle = enqueue(secret(pin="PIN-1234", amount=1), retry=Retry(attempts=1))
    drain(raises=False)
    former = '{"pin":"PIN-9876","amount":77}'
    factories.InputRevisionFactory(work_id=handle.id, input=former, replaced_by="<b>ann")
    shown = page(WORK, handle.id)
    assert_shows(shown, "Former inputs", "&lt;b&gt;ann", "77")
    assert_hides(shown, "PIN-9876", "PIN-1234")
    retry(handle.id, {"pin": "PIN-5555", "amount": 2})
    assert "PIN-5555" not in page(WORK, handle.id)


# Attempts and the timeline


@each_database
def test_a_dead_work_shows_every_attempt_with_its_traceback_and_its_timeline_in_words(page):
    shown = page(WORK, die("no luck").id)
    assert shown.count('<details class="ayework-error"><summary>RuntimeError: no luck</summary>') == 3
    assert_shows(shown, "exhausted", "raise RuntimeError(message)", "3 / 3")
    assert "attempt 3 died" in shown.split('aria-label="Timeline: ')[1].split('"')[0]
    assert "style=" not in shown.split("ayework-timeline")[1].split("</figure>")[0]


def test_attempts_that_succeeded_are_listed_where_the_type_keeps_them(page):
    handle = enqueue(kept())
    drain()
    shown = page(WORK, handle.id)
    assert "<td>success</td>" in section(shown, "Attempts")
    assert "Attempts that did not succeed" not in shown
    kinds = [span.kind for span in spans_of(Work.objects.get(), list(Attempt.objects.all()), clock.now())]
    assert kinds[-1] == "success"
    assert kinds.count("success") == 1


def test_the_timeline_shows_each_wait_and_attempt_to_scale():
    start = clock.now() - timedelta(hours=1)
    at = {seconds: start + timedelta(seconds=seconds) for seconds in range(0, 101, 10)}
    work = WorkFactory(status="success", attempt=3, queued_at=start, started_at=at[80], ended_at=at[100])
    for number, (begin, end, outcome) in enumerate([(10, 30, "failed"), (40, 50, "lost")], 1):
        moments = {"started_at": at[begin], "ended_at": at[end]}
        AttemptFactory(work_id=work.id, number=number, outcome=outcome, **moments)
    spans = spans_of(work, list(Attempt.objects.order_by("number")), clock.now())
    assert [span.text for span in spans] == [
        "waited: 10 s",
        "attempt 1 failed: 20 s",
        "waited for a retry: 10 s",
        "attempt 2 lost: 10 s",
        "waited for a retry: 30 s",
        "success: 20 s",
    ]
    widths = [float(rectangle["width"]) for rectangle in drawn(spans)]
    assert widths[1] == pytest.approx(2 * widths[0], rel=0.01)
    assert sum(widths) <= 720


def test_the_timeline_tells_a_retry_by_hand_from_others():
    handle = enqueue(fail(), retry=Retry(attempts=1))
    drain(raises=False)
    time_travel(60)
    retry(handle.id)
    labels = [span.label for span in spans_of(Work.objects.get(), list(Attempt.objects.all()), clock.now())]
    assert labels[-2:] == ["attempt 1 died", "waited for a retry by hand"]
    drain(raises=False)
    labels = [span.label for span in spans_of(Work.objects.get(), list(Attempt.objects.all()), clock.now())]
    assert labels[-3:] == ["attempt 1 died", "waited for a retry by hand", "attempt 1 died"]


@pytest.mark.parametrize(
    ("status", "started", "ended", "kinds"),
    [
        ("pending", None, None, ["waited"]),
        ("running", 10, None, ["waited", "running"]),
        ("running", -50, None, ["running"]),
        ("success", 10, 20, ["waited", "success"]),
        ("cancelled", None, 30, ["waited"]),
    ],
)
def test_every_work_has_a_timeline(page, status, started, ended, kinds):
    queued = clock.now() - timedelta(seconds=60)
    moments = {"started_at": started, "ended_at": ended}
    moments = {name: queued + timedelta(seconds=at) for name, at in moments.items() if at is not None}
    work = WorkFactory(status=status, queued_at=queued, **moments)
    assert [span.kind for span in spans_of(work, [], clock.now())] == kinds
    assert 'role="img"' in page(WORK, work.id)


# Links


def test_a_work_links_to_what_it_is_about_if_that_has_a_page_for_the_reader(page, viewer):
    order, audit = Order.objects.create(reference="A"), Audit.objects.create()
    about = enqueue(add(a=1, b=2), about=audit)
    link = f'<a href="/admin/audit/audit/{audit.pk}/change/">audit.audit:{audit.pk}</a>'
    assert link in page(WORK, about.id)
    shown = viewer.get(address(WORK, about.id)).content.decode()
    assert f"<dd>audit.audit:{audit.pk}</dd>" in shown
    unregistered = enqueue(pay(order_id=order.pk), about=order)
    assert f"<dd>shop.order:{order.pk}</dd>" in page(WORK, unregistered.id)
    gone = WorkFactory(about_type="removed.thing", about_id="3")
    assert "<dd>removed.thing:3</dd>" in page(WORK, gone.id)


def test_a_work_leads_to_its_parent_children_gate_chain_worker_and_group_for_readers_of_groups(
    page, client_with
):
    handle = enqueue(root())
    drain()
    links = [address(WORK, child.id) for child in Work.objects.filter(parent_id=handle.id)]
    assert len(links) == 3
    assert_shows(page(WORK, handle.id), *links, f'href="{address("group_change", handle.id)}"')
    first, second = enqueue_many([add(a=1, b=1), add(a=2, b=2)], together=True)
    assert f'href="{address("group_change", first.id)}"' in page(WORK, second.id)
    shown = client_with("view_work").get(address(WORK, second.id)).content.decode()
    assert first.id in shown
    assert address("group_change", first.id) not in shown
    gate = Work.objects.get(type=GATE_TYPE)
    released = page(WORK, Work.objects.get(parent_id=gate.id).id)
    assert_shows(released.lower(), "released by the gate", address(WORK, gate.id))
    worker = factories.WorkerProcessFactory()
    running = {"status": "running", "worker": worker.id, "started_at": clock.now()}
    shown = page(WORK, WorkFactory(chain_id="chain-1", chain_index=2, **running).id)
    links = address("work_changelist", q="chain-1"), address("workerprocess_change", worker.id)
    assert_shows(shown, "step 3 of the chain chain-1", "3. shop.", "<td>3</td>", *links)


def test_of_a_huge_group_the_page_does_not_look_for_children(page):
    id = GroupFactory(total=20_000).id
    parent, child = WorkFactory(id=id, group_id=id), WorkFactory(group_id=id, parent_id=id)
    shown = page(WORK, parent.id)
    assert child.id not in shown
    assert "too many to look through" in shown


@each_database
def test_ids_of_all_kinds_have_a_page(page, operator):
    for id in ("a/b", "add", "_2F", "ünï-✓", "100%", "a?b=c#d", '"quoted"', "retry/"):
        enqueue(add(a=1, b=2), id=id)
        assert "shop.add" in page(WORK, quote(id))
    response = operator.get(address(WORK, "missing"), follow=True)
    assert "missing" in response.content.decode()
    assert response.redirect_chain


#: Ids that no row has: PostgreSQL takes no text with a NUL, and no number of this length.
ODD_IDS = ("a\0b", "\0", "9" * 40, "x" * 5000)


@each_database
@pytest.mark.parametrize("model", [*ADMINS])
def test_an_id_that_no_column_can_have_is_that_of_no_row(operator, model):
    for id in ODD_IDS:
        change = operator.get(address(f"{model}_change", id))
        assert (change.status_code, change["Location"]) == (302, reverse("admin:index"))
        assert operator.get(address(f"{model}_history", id)).status_code in (302, 404)
        for button in ADMINS[model]:
            assert operator.post(address(f"{model}_{button}", id)).status_code in (403, 404)


HOSTILE = "<script>alert('x')</script>&\"'"


def test_stored_texts_are_never_markup(page):
    id = "<script>alert('x')</script>"
    texts = "type queue fairness input result error progress options worker"
    ids = "parent_id about_type about_id group_id"
    columns = dict.fromkeys([*texts.split(), *ids.split()], HOSTILE)
    WorkFactory(id=id, status=Status.DEAD, reason="<script>x", **columns)
    AttemptFactory(work_id=id, error=HOSTILE, traceback=HOSTILE, worker=HOSTILE)
    GroupFactory(id="<script>alert(1)</script>", value="<script>alert(2)</script>")
    for shown in (
        page("work_changelist"),
        page("work_changelist", q=HOSTILE, status=HOSTILE, type=HOSTILE, group_id=HOSTILE),
        page("deadletter_list"),
        page("deadletter_change", quote(id)),
        page("group_changelist"),
        page("group_change", "<script>alert(1)<_2Fscript>"),
        page(WORK, quote(id)),
    ):
        assert_hides(shown, "<script>alert", "<script>x")
    assert "&lt;script&gt;alert(&#x27;x&#x27;)" in shown


def test_a_page_takes_a_bounded_number_of_queries(operator, django_assert_max_num_queries):
    dead, ended = die(), enqueue(root())
    drain()
    pending = enqueue_many([add(a=number, b=0) for number in range(50)])[-1]
    clock.synchronise()  # done once a minute, so it is not counted here
    # Of the dead: session, user, work, the worker that ended it, attempts, waiter, its waiters.
    # Of the pending besides: controls, types of the queue (2; 3 on MariaDB), works ahead, workers.
    for each, most in ((dead, 9), (pending, 13), (ended, 16)):
        with django_assert_max_num_queries(most):
            operator.get(address(WORK, each.id))


# Gates


@pytest.mark.parametrize("options", [{"delay": 60}, {"retry": Retry(attempts=1)}], ids=["blocked", "dead"])
def test_why_links_to_the_works_that_hold_a_gate_up(page, options):
    watched = fail()
    gate = enqueue(dependency(on=[watched], queue=[add(a=1, b=1)]))
    enqueue(watched, **options)
    drain(raises=False)
    assert address(WORK, watched.id) in section(page(WORK, gate.id), "Why")


def test_a_gate_shows_what_it_waits_for_and_what_it_will_release(page):
    watched = [add(a=number, b=0) for number in range(3)]
    enqueue_many(watched[:2])
    released = add(a=7, b=7)
    gate = enqueue(dependency(on=watched, queue=[released], condition=Count(2, of="success")))
    shown = page(WORK, gate.id)
    assert_shows(shown, "2 succeeded", "0 of 3 succeeded, 0 ended without success")
    assert shown.count("ayework-pending") == 2
    assert f"<td>{watched[2].id}</td><td>not known here</td>" in shown
    assert f"<td>{released.id}</td><td>shop.add</td><td>{{&quot;a&quot;:7,&quot;b&quot;:7}}</td>" in shown


@each_database
def test_an_open_gate_links_to_its_released_works_and_a_watched_work_to_its_gate(page):
    watched, released = add(a=1, b=0), add(a=7, b=7)
    enqueue(watched)
    gate = enqueue(dependency(on=[watched], queue=[released]))
    assert f'href="{address(WORK, gate.id)}"' in page(WORK, watched.id)
    drain()
    link = f'href="{address(WORK, released.id)}"'
    assert_shows(page(WORK, gate.id), "all succeeded", "1 of 1 succeeded", link)
    never = enqueue(dependency(on=[die().id], queue=[add(a=1, b=1)]))
    drain()
    tally = "0 of 1 succeeded, 1 ended without success"
    assert_shows(page(WORK, never.id), "unsatisfiable", tally, "ayework-dead")


def test_of_many_watched_works_the_first_hundred_are_shown(operator, django_assert_max_num_queries):
    watched, released = ([add(a=number, b=0) for number in range(130)] for _ in range(2))
    enqueue_many(watched)
    gate = enqueue(dependency(on=watched, queue=released))
    operator.get(address(WORK, gate.id))  # what is read once a minute or once a process is not counted
    with django_assert_max_num_queries(18):
        shown = operator.get(address(WORK, gate.id)).content.decode()
    assert_shows(shown, watched[99].id, released[99].id)
    assert_hides(shown, watched[100].id, released[100].id)
    assert shown.count("The first 100 of 130.") == 2


def test_nested_gates_broken_inputs_and_works_that_are_gone_are_shown(page, monkeypatch):
    inner = dependency(on=["x", "y"], queue=[add(a=1, b=1)])
    nesting = enqueue(dependency(on=["z"], queue=[inner], condition="all-done"))
    assert_shows(page(WORK, nesting.id), "a gate watching 2 works", "all ended")
    blocked = {"type": GATE_TYPE, "status": "blocked"}
    gate = WorkFactory(**blocked, input='{"queue": []}')
    WaiterFactory(work_id=gate.id, total=1, succeeded=1)
    factories.EdgeFactory(waiter_id=gate.id, watched_id="pruned", outcome="success")
    row = '<td>pruned</td><td>not known here</td><td><span class="ayework-status ayework-success">'
    assert row in page(WORK, gate.id)
    monkeypatch.setattr("django_ayework.flow.payloads.registry", Registry())  # where no type redacts
    broken = WorkFactory(**blocked, input="<b>broken")
    WaiterFactory(work_id=broken.id, condition='"no-such"')
    assert_shows(page(WORK, broken.id), "&lt;b&gt;broken", "no-such")


# Groups


@each_database
def test_a_group_shows_its_progress_its_value_and_its_works_and_is_found_by_its_id(operator, page):
    works = enqueue_many([add(a=1, b=2), fail(), *(add(a=1, b=n) for n in range(2))], together=True)
    id = works[0].id
    assert 'value="0" max="4"' in page("group_changelist")
    drain(limit=1)
    assert 'value="1" max="4"' in page("group_changelist")
    shown = page("group_change", id)
    assert shown.count("ayework-success") == 1
    link = f'href="{address("work_changelist")}?group_id={id}"'
    assert_shows(shown, f'href="{address(WORK, works[1].id)}"', link)
    die()  # runs the others, too
    enqueue(add(a=9, b=9))
    listed = page("group_changelist")
    assert_shows(listed, '<progress class="ayework-bar" value="4" max="4" aria-label="done">', "4 / 4")
    assert_shows(listed, '<td class="field-dead">1</td>', '<td class="field-open">0</td>')
    value = enqueue_many([add(a=1, b=2), add(a=20, b=22)], together=True)[0]
    drain()
    assert '<pre class="ayework-text" tabindex="0">42</pre>' in page("group_change", value.id)
    for term, found in ((id, [id]), (id[:8], [])):
        assert ids_on(operator.get(address("group_changelist", q=term))) == found


def test_the_page_of_a_group_shows_no_error_of_a_work_that_the_admin_of_works_hides(page, monkeypatch):
    group = enqueue_many([fail(message="of a patient"), fail(message="of ours")], together=True)[0].id
    drain(raises=False)
    time_travel(60)
    drain(raises=False)
    hide(monkeypatch, error__contains="patient")
    shown = page("group_change", group)
    assert "of ours" in shown
    assert "patient" not in shown


def test_of_many_works_the_first_hundred_are_shown(operator, django_assert_max_num_queries):
    works = enqueue_many([add(a=1, b=number) for number in range(130)], together=True)
    # session, user; the group and its works; why two of them wait; one more on PostgreSQL, four on MariaDB
    with django_assert_max_num_queries(22):
        shown = operator.get(address("group_change", works[0].id)).content.decode()
    assert_shows(shown, works[99].id, "The first 100 of 130: those that need attention.")
    assert works[100].id not in shown
