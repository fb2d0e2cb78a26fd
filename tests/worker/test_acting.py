"""A handler is told when its work is taken from it by hand."""

from __future__ import annotations

import pytest

from django_ayework import cancel, complete, delete_chains, enqueue
from django_ayework.flow import effects
from django_ayework.models import Work
from django_ayework.testing import running_worker
from tests.processes import eventually
from tests.worker.works import until_aborted

pytestmark = pytest.mark.usefixtures("quick_polls")

ACTS = [
    (cancel, "cancelled", {"cancelled"}),
    (complete, "already_completed", {"success"}),
    (delete_chains, "not_found", set()),
]


@pytest.mark.parametrize(("act", "reason", "status"), ACTS)
def test_the_worker_of_this_process_tells_it_at_once(stage, act, reason, status):
    handle = enqueue(until_aborted())
    with running_worker():
        eventually(lambda: stage.started)
        act(handle.id)
        eventually(lambda: stage.seen)
    assert stage.seen == [reason]
    assert set(Work.objects.filter(id=handle.id).values_list("status", flat=True)) == status


@pytest.mark.parametrize(("act", "reason", "status"), ACTS)
def test_a_worker_elsewhere_notices_by_itself(stage, monkeypatch, act, reason, status):
    """What another process does reaches no listener here."""
    handle = enqueue(until_aborted())
    with running_worker():
        eventually(lambda: stage.started)
        monkeypatch.setattr(effects, "_revocation_listeners", set())
        act(handle.id)
        eventually(lambda: stage.seen)
    assert stage.seen == [reason]
    assert set(Work.objects.filter(id=handle.id).values_list("status", flat=True)) == status
