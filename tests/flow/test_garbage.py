"""Garbage collection beside very many objects: left out for a while, and then no more."""

import gc

import pytest

from django_ayework import enqueue_many
from django_ayework.flow.garbage import MANY, collecting_only_what_is_new
from tests.app.works import add


@pytest.fixture(autouse=True)
def nothing_frozen():
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_there_is_is_left_out_inside_and_only_there():
    with collecting_only_what_is_new(MANY):
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_an_error_inside_leaves_nothing_frozen():
    with pytest.raises(ZeroDivisionError), collecting_only_what_is_new(MANY):
        1 / 0  # noqa: B018
    assert gc.get_freeze_count() == 0


def test_few_objects_are_no_reason():
    with collecting_only_what_is_new(MANY - 1):
        assert gc.get_freeze_count() == 0


def test_what_a_process_has_frozen_stays_frozen():
    gc.freeze()
    frozen = gc.get_freeze_count()
    with collecting_only_what_is_new(MANY):
        pass
    assert gc.get_freeze_count() == frozen


@pytest.mark.django_db
def test_garbage_is_collected_after_very_many_were_queued():
    enqueue_many([add(a=number, b=0) for number in range(MANY)])
    assert gc.get_freeze_count() == 0
