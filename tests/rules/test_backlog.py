"""When a backlog is reported."""

import dataclasses

import pytest

from django_ayework.doers import BacklogInfo
from django_ayework.rules.health import Episode


def reports(episode, *moments):
    return [episode.reported(moment) for moment in moments]


def test_it_is_reported_once_when_it_has_lasted_long_enough():
    episode = Episode(since=5, after=10, every=None)

    assert reports(episode, 5, 14.9, 15, 15.1, 9999) == [None, None, 10, None, None]
    assert episode.due_at is None


def test_it_is_reported_again_every_so_often():
    episode = Episode(since=0, after=10, every=3)

    assert reports(episode, 10, 12.9, 13, 15.9, 16) == [10, None, 13, None, 16]


def test_a_late_look_is_reported_once_and_counts_from_then():
    episode = Episode(since=0, after=10, every=3)

    assert reports(episode, 50, 50, 52.9, 53) == [50, None, None, 53]


def test_it_says_when_to_look_again():
    episode = Episode(since=2, after=10, every=3)
    assert episode.due_at == 12
    episode.reported(12.5)
    assert episode.due_at == 15.5


def test_what_is_reported_is_a_value():
    info = BacklogInfo(active=1, queued=None, behind_for=2.0)
    assert info == BacklogInfo(active=1, queued=None, behind_for=2.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.active = 2
