"""Changes of controls that a worker sees between two polls, all at once."""

import pytest

from django_ayework import enqueue, limit, pause
from django_ayework.models import WorkControl
from tests.claiming import claimer_of
from tests.controls.works import other

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("is_new", [True, False])
def test_a_pause_is_heeded_that_comes_together_with_the_end_of_another_control(is_new):
    limit("controls.plain", weight=5)
    if not is_new:
        limit("controls.other", weight=5)
    claimer = claimer_of()
    claimer.poll()
    WorkControl.objects.get(name="controls.plain").delete()
    if not is_new:
        limit("controls.other", weight=6)
    pause(type="controls.other")
    enqueue(other())
    claimer.poll()
    assert claimer.claim(1) == []
