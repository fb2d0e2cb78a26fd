"""What the page on backups says of a restore holds, and its examples do what they are for."""

import pytest
from django.core.management import call_command

from django_ayework import WorkNotFound, complete, enqueue, pause, schedule
from django_ayework.flow.maintenance import prune
from django_ayework.models import Work, WorkControl, WorkerProcess
from django_ayework.testing import drain, running_worker, tick, time_travel
from tests.backups.works import charge, claims, notify, ran, slow, while_running
from tests.documentation.pages import page, python_blocks

pytestmark = pytest.mark.django_db
PAGE = page("operations/backups.md")
PAUSE, COUNT, RESUME, _ = [source for _, source in python_blocks(PAGE)]


def run(source):
    exec(compile(source, str(PAGE), "exec"), {})


def paused():
    return set(WorkControl.objects.filter(paused=True).values_list("name", flat=True))


def test_a_work_that_has_run_since_the_backup_runs_once_more(backup):
    due, later = enqueue(charge(number=1)), enqueue(charge(number=2), delay=60)
    restore = backup()
    time_travel(61)
    drain()
    assert (ran[1], ran[2]) == (1, 1)
    restore()
    assert (due.state().status, later.state().status) == ("pending", "scheduled")
    drain()
    assert (ran[1], ran[2], due.result(timeout=0)) == (2, 2, 1)


@pytest.mark.parametrize("of_all", [False, True])
def test_what_dumpdata_wrote_of_all_models_is_loaded_again(tmp_path, of_all):
    handle, dump = enqueue(charge(number=1)), tmp_path / "dump.json"
    call_command("dumpdata", "django_ayework", use_base_manager=of_all, output=dump, verbosity=0)
    Work.objects.all()._raw_delete("default")
    call_command("loaddata", dump, verbosity=0)
    drain()
    assert (ran[1], handle.result(timeout=0)) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_a_work_that_was_running_is_taken_back_and_counts_an_attempt(backup, settings):
    settings.AYEWORK = {"POLL_INTERVAL": 0.05, "LEASE": 1.0, "RETRY": {"base": 0}}
    restores = []
    while_running.append(lambda: restores.append(backup()))
    handle = enqueue(slow(number=1))
    with running_worker(concurrency=1):
        assert handle.result(timeout=30) == 1
    restores[0]()
    assert handle.state().status == "running"
    assert WorkerProcess.objects.filter(stopped_at=None).exists()
    with running_worker(concurrency=1):
        assert handle.result(timeout=30) == 2
    assert ran[1] == 2


def test_a_work_a_claimed_key_and_a_pause_from_after_the_backup_are_gone(backup):
    def claimed():
        handles = [enqueue(claims(key="invoice-7")) for _ in range(2)]
        drain()
        return [handle.result(timeout=0) for handle in handles]

    restore = backup()
    assert claimed() == [True, False]
    pause(queue="default")
    handle = enqueue(charge(number=1))
    restore()
    assert paused() == set()
    with pytest.raises(WorkNotFound):
        handle.result(timeout=0)
    assert claimed() == [True, False]


def test_a_schedule_fires_once_for_all_that_was_missed(backup):
    declared = schedule(name="tests.backups.nightly", every=60, run=charge(number=1))
    try:
        tick()
        restore = backup()
        time_travel(600)
        restore()
        assert tick() == 1
        assert Work.objects.filter(type="tests.backups.charge").count() == 1
    finally:
        declared.cancel()


def test_what_is_past_its_retention_is_deleted_and_what_is_past_its_deadline_dies(backup):
    ended, late = enqueue(charge(number=1)), enqueue(charge(number=2), delay=60, expires=120)
    drain()
    restore = backup()
    time_travel(2 * 86_400)
    restore()
    assert prune() == 1
    assert ended.state() is None
    drain(raises=False)
    assert late.state().reason == "expired"
    assert ran[2] == 0


def test_the_steps_of_a_restore_let_only_run_what_may_run_again(backup, capsys):
    handles = [enqueue(each) for each in (charge(number=1), notify(number=2), slow(number=3))]
    handles += [enqueue(charge(number=4), queue=name) for name in ("mail", "reports")]
    restore = backup()
    drain()
    restore()
    run(PAUSE)
    assert paused() == {"default", "mail", "reports"}
    ran.clear()
    drain()
    assert not ran
    run(COUNT)
    assert capsys.readouterr().out.splitlines() == [
        "tests.backups.charge pending 3",
        "tests.backups.notify pending 1",
        "tests.backups.slow pending 1",
    ]
    call_command("ayework_cancel", "--type", "tests.backups.charge", verbosity=0)
    complete(handles[1].id, result=2)
    run(RESUME)
    assert paused() == set()
    drain()
    assert dict(ran) == {3: 1}
    ends = ["cancelled", "success", "success", "cancelled", "cancelled"]
    assert [handle.state().status for handle in handles] == ends


def test_a_copy_whose_works_are_cancelled_runs_none(backup):
    enqueue(charge(number=1))
    enqueue(charge(number=2), delay=60)
    enqueue(notify(number=3), blockers=[enqueue(charge(number=4), delay=60)])
    backup()()
    call_command("ayework_cancel", "--all", verbosity=0)
    time_travel(61)
    drain()
    assert not ran
    assert set(Work.objects.values_list("status", flat=True)) == {"cancelled"}
