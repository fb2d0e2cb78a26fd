"""What the figures of the fleet are said to mean: one table for each kind of problem."""

from datetime import UTC, datetime

import pytest

from django_ayework.rules import figures
from django_ayework.rules.problems import RULES, ProblemCode, headline, problems
from tests.documentation.pages import names, table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def worker(**given):
    usual = {"id": "w1", "name": "", "host": "web-1", "pid": 7, "queues": "", "concurrency": 8, "running": 1}
    usual |= {"started_at": NOON, "seen_at": NOON, "silent": 1.0, "stale": False}
    return figures.WorkerFigures(**usual | given)


def queue(name="mail", **given):
    return figures.QueueFigures(queue=name, **given)


def kind(name="shop.send", **given):
    return figures.TypeFigures(type=name, **{"queues": ("mail",), "running": 1, **given})


def nightly(**given):
    return figures.ScheduleFigures(name="nightly", runs="x", due_at=NOON, **given)


def seen(*rows, workers=None, **given):
    return figures.Observed(
        at=NOON,
        workers=[worker()] if workers is None else workers,
        queues=[each for each in rows if isinstance(each, figures.QueueFigures)],
        types=[each for each in rows if isinstance(each, figures.TypeFigures)],
        **given,
    )


START = "manage.py ayework_worker"
START_ONE = f"Start one: {START}"
LIMIT_IT = "Pause it, or limit how many run at a time, in its row of the table of types."
MEND = "Open the dead letters by cause. Mend the cause, then retry them."
MANY = ("pending",)  # counted up to a bound
MISNAMED = figures.ParkedFigures(type="shop.sedn", works=1, seconds=90.0, advice="Keep its name.")
STALE = worker(stale=True, silent=120.0)


@pytest.mark.parametrize(
    ("observed", "text", "remedy"),
    [
        (seen(queue(pending=499), workers=[]), "No worker is running, and 499 works wait.", START_ONE),
        (seen(queue(pending=10_000, capped=MANY), workers=[STALE]),
         "No worker is running, and 10,000+ works wait.", START_ONE),
        (seen(queue(pending=1), workers=[]), "No worker is running, and 1 work waits.", START_ONE),
        (seen(queue(scheduled=3, waiting=5.0), workers=[]),
         "No worker is running, and scheduled works are due.", START_ONE),
        (seen(workers=[]), "No worker is running, but nothing waits for one.", START_ONE),
        (seen(queue(pending=3), workers=[worker(quiet=True), worker(quiet=True)]),
         "All 2 workers are quiet: 3 wait, and nothing is claimed.",
         f"Resume them on the page of worker processes, or start another: {START}"),
        (seen(queue("exports", pending=499, served=False)),
         "exports: 499 works wait, and no live worker serves the queue.", f"{START_ONE} --queues exports"),
        (seen(queue("it's; rm", pending=1, served=False)),
         "it's; rm: 1 work waits, and no live worker serves the queue.",
         f"""{START_ONE} --queues 'it'"'"'s; rm'"""),
        (seen(queue("exports", lapsed=2, served=False)),
         "exports: works of lost workers wait to be reclaimed, and no live worker serves the queue.",
         f"{START_ONE} --queues exports"),
        (seen(queue(pending=12, paused=True)), "The queue mail is paused, and 12 works wait.",
         "Resume it in the table of queues, or run: manage.py ayework_resume --queue mail"),
        (seen(queue(pending=12), kind(pending=12, paused=True)),
         "The type shop.send is paused, and 12 works wait.",
         "Resume it in the table of types, or run: manage.py ayework_resume --type shop.send"),
        (seen(queue(pending=12), kind(pending=12, running=0, waiting=90.0)),
         "shop.send: 12 works wait, the oldest for 1 min 30 s, and no worker takes them "
         "although slots are free.",
         f"Start one that knows and serves the type: {START} --types shop.send"),
        (seen(parked=[MISNAMED]),
         "shop.sedn: 1 work waits, the oldest for 1 min 30 s, and no worker that claims them knows the type.",
         "Start a worker with the app that defines the type. Keep its name."),
        (seen(workers=[worker(trouble="the thread 'settling' has made no progress for 64 s")]),
         "Worker web-1:7 reports a problem: the thread 'settling' has made no progress for 64 s.",
         "Start it again."),
        (seen(queue(pending=1200), kind(pending=1200, share=0.96, arriving=448.0, rate=59.0)),
         "Too many works of shop.send: 1,200 works wait, 96% of the backlog; "
         "448 arrive and 59 end per minute.", LIMIT_IT),
        (seen(queue(pending=5000), kind(pending=5000, share=1.0, rate=10.0)),
         "Too many works of shop.send: 5,000 works wait, all of the backlog; "
         "0 arrive and 10 end per minute.", LIMIT_IT),
        (seen(queue(pending=9000), kind(pending=1400, capped=MANY, share=0.2, arriving=80.0),
              kind("shop.other", pending=1400, capped=MANY, share=0.2, arriving=20.0, rate=900.0)),
         "Too many works of shop.send: 1,400+ works wait, 80% of what arrives; "
         "80 arrive and 0 end per minute.", LIMIT_IT),
        (seen(queue(pending=300), kind(pending=300, waiting=900.0), workers=[worker(running=8)]),
         "All 8 slots are busy, and 300 wait, the oldest for 15 min.", f"Start more workers: {START}"),
        (seen(died_lately={"shop.send": 40, "shop.pay": 2}, died_before=10),
         "42 works died during the last 10 min: shop.send (40), shop.pay (2).", MEND),
        (seen(died_lately={"shop.send": 1000}, died_capped=True),
         "1,000+ works died during the last 10 min: shop.send (1,000).", MEND),
        (seen(queue(pending=800), kind(pending=800, running=2, max_running=2, share=1.0)),
         "shop.send runs at its limit of 2, and 800 works wait.",
         "Raise the limit in its row of the table of types, or wait until its works have run."),
        (seen(failing=[nightly(failures=3, error="Oops: no\nx")]),
         "The schedule nightly has failed 3 times: Oops: no.",
         "Mend the code of its type; the schedule is tried again by itself."),
        (seen(workers=[worker(), worker(id="w2", name="old", stale=True, silent=120.0)]),
         "Worker old (web-1:7) has sent no heartbeat for 2 min, and did not sign off.",
         "Check whether its process runs. Other workers take its works over once their leases have lapsed."),
        (seen(queue(pending=12, rate=340.2), workers=[worker(running=3), worker(running=2)]),
         "All is well: 2 workers run 5 works, 12 wait, 340 ended per minute.", ""),
        (seen(queue(pending=1)), "All is well: 1 worker runs 1 work, 1 waits, 0 ended per minute.", ""),
        (seen(queue(pending=1), dead=1),
         "No problem was found, but 1 work is dead: 1 worker runs 1 work, 1 waits, 0 ended per minute.",
         MEND),
        (seen(dead=10_000, dead_capped=True),
         "No problem was found, but 10,000+ works are dead: 1 worker runs 1 work, 0 wait, 0 ended per "
         "minute.", MEND),
    ],
)  # fmt: skip
def test_the_headline_says_what_is_wrong_and_what_to_do(observed, text, remedy):
    first = headline(problems(observed), observed)
    assert (first.text, first.remedy) == (text, remedy)


@pytest.mark.parametrize(
    "observed",
    [
        seen(queue(paused=True)),  # nothing waits there
        seen(queue(served=False)),
        seen(kind(paused=True)),
        seen(workers=[worker(quiet=True)]),
        seen(queue(pending=999), kind(pending=999, share=1.0, arriving=9.0)),  # too few for a flood
        seen(queue(pending=5000), kind(pending=5000, share=0.4, arriving=9.0)),  # too small a share
        seen(queue(pending=5000), kind(pending=5000, share=1.0, arriving=9.0, rate=600.0)),  # soon done
        seen(queue(pending=2), kind(pending=2, running=0, waiting=30.0)),  # just queued
        seen(queue(pending=2), kind(pending=2, running=0, waiting=90.0, rate=1.0)),  # some have ended
        seen(queue(pending=2), kind(pending=2, running=0, waiting=90.0), workers=[worker(running=8)]),
        seen(queue(pending=2), kind(pending=2, waiting=590.0), workers=[worker(running=8)]),
        seen(died_lately={"a": 4}),
        seen(died_lately={"a": 10}, died_before=25),  # no more than before
        seen(kind(running=2, max_running=2)),  # at its limit, nothing waits
        seen(queue(pending=2), kind(pending=2, running=1, max_running=2)),
    ],
)
def test_what_is_as_it_should_be_is_no_problem(observed):
    assert problems(observed) == []


FLOOD = kind("shop.flood", queues=("web",), pending=2000, share=0.9, arriving=9.0)
SEVERAL = seen(
    queue("exports", pending=3, served=False),
    queue("mail", pending=4, paused=True),
    queue("web", pending=2000),
    FLOOD,
    kind("shop.limited", queues=("web",), pending=5, running=2, max_running=2),
    kind("shop.halted", queues=("web",), pending=5, paused=True),
    workers=[worker(trouble="stuck"), STALE],
    died_lately={"shop.a": 30},
    failing=[nightly(failures=1, error="no")],
)
WITHOUT_WORKERS = seen(
    queue("web", pending=2000, served=False),
    queue("mail", pending=4, paused=True, served=False),
    FLOOD,
    workers=[STALE],
)


@pytest.mark.parametrize(
    ("observed", "codes"),
    [
        (SEVERAL, "queue_not_served queue_paused worker_trouble type_floods deaths_rise at_limit type_paused "
                  "schedule_fails worker_silent"),
        (WITHOUT_WORKERS, "no_worker queue_paused worker_silent"),
    ],
    ids=["several", "only what does not follow from that there is no worker"],
)  # fmt: skip
def test_problems_come_in_the_order_of_severity(observed, codes):
    assert [problem.code.value for problem in problems(observed)] == codes.split()


def test_the_rules_stand_in_the_order_of_the_codes():
    alone = {
        "workers_quiet": seen(queue(pending=3), workers=[worker(quiet=True)]),
        "types_not_taken": seen(queue(pending=2), kind(pending=2, running=0, waiting=90.0)),
        "backlog_grows": seen(queue(pending=9), kind(pending=9, waiting=900.0), workers=[worker(running=8)]),
    }
    codes = [rule.__name__ for rule in RULES]
    assert len(codes) == len(ProblemCode) - 2  # all but no_worker and all_well
    for name, observed in alone.items():
        [problem] = problems(observed)
        assert list(ProblemCode).index(problem.code) == codes.index(name) + 1


def test_a_type_that_waits_in_halted_queues_only_is_not_to_blame():
    halted = kind(pending=5000, running=0, waiting=999.0, share=1.0, arriving=9.0)
    for queue_ in (queue(pending=5000, paused=True), queue(pending=5000, served=False)):
        assert len(problems(seen(queue_, halted))) == 1


def test_a_few_problems_of_a_kind_are_listed():
    observed = seen(*(queue(f"q{number}", pending=1, served=False) for number in range(40)))
    assert [problem.name for problem in problems(observed)] == ["q0", "q1", "q2", "q3", "q4"]


def test_the_guide_lists_every_code_in_order():
    rows = table("guides/overview.md", "Nothing is processed: why?")
    assert [names(row[0])[0] for row in rows] == list(ProblemCode)


@pytest.mark.parametrize(
    ("values", "p50", "p95"),
    [([], None, None), ([4.0], 4.0, 4.0), ([1.0, 2.0], 1.0, 2.0), ([*map(float, range(1, 101))], 50.0, 95.0)],
)
def test_percentiles(values, p50, p95):
    assert (figures.percentile(values, 0.5), figures.percentile(values, 0.95)) == (p50, p95)
