"""Requests exist, with their ids, before anything is queued."""

import dataclasses
import uuid

import pytest

from django_ayework import InvalidWorkId
from django_ayework.define.ids import new_id
from tests.define.declared import step


def test_a_request_has_an_id_before_it_is_queued():
    assert uuid.UUID(step()().id).version == 7


def test_every_call_is_a_request_of_its_own():
    build = step()
    requests = [build(n=1) for _ in range(100)]

    assert len({request.id for request in requests}) == 100
    assert [request.id for request in requests] == sorted(request.id for request in requests)
    assert requests[0] != requests[1]
    assert len(set(requests)) == 100  # they may be kept in a set


def test_ids_come_from_the_projects_own_maker(monkeypatch):
    make = iter(["mine-1", "mine-2"]).__next__
    monkeypatch.setattr(new_id, "custom", lambda: make)
    build = step()

    assert [build().id, build().id] == ["mine-1", "mine-2"]


def test_an_own_maker_that_makes_no_usable_id_is_refused(monkeypatch):
    monkeypatch.setattr(new_id, "custom", lambda: lambda: "two words")
    with pytest.raises(InvalidWorkId, match="printable characters without spaces, got: 'two words'"):
        step()()


def test_a_request_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        step()().id = "other"
