"""A worker that is killed between the handler's write and the commit leaves nothing of it."""

from __future__ import annotations

import pytest

from django_ayework import enqueue
from django_ayework.models import Work
from tests.app.works import add
from tests.modes.works import killed_atomic, killed_staged, notes
from tests.processes import ended, eventually, worker_process

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("mode", "left"),
    [(killed_atomic, ["handler 2"]), (killed_staged, ["prepare 1", "prepare 2", "complete 2"])],
    ids=lambda value: getattr(value, "name", ""),
)
def test_only_the_attempt_that_committed_has_effects(process_env, tmp_path, mode, left):
    env = process_env | {"DJANGO_SETTINGS_MODULE": "tests.modes.settings_short_lease"}
    handle = enqueue(mode(place=str(tmp_path)))
    with worker_process(env) as victim:
        eventually(lambda: (tmp_path / "wrote-1").exists())
        victim.kill()
        ended(victim)
    assert notes() == left[: -1 if mode is killed_atomic else -2]
    assert Work.objects.count() == 1
    with worker_process(env):
        eventually(lambda: handle.state().status == "success")
        eventually(lambda: set(Work.objects.values_list("status", flat=True)) == {"success"})
    assert notes() == left
    assert Work.objects.filter(type=add.name).count() == 1
    assert handle.state().attempt == 2
