"""``AYEWORK["ID"]`` makes the ids of works."""

import uuid

import pytest
from django.test import override_settings

from django_ayework import InvalidWorkId
from django_ayework.define.ids import new_id


def test_ids_are_made_by_the_setting():
    with override_settings(AYEWORK={"ID": lambda: "made-here"}):
        assert new_id() == "made-here"
    assert uuid.UUID(new_id()).version == 7


def test_an_id_that_cannot_be_used_is_refused():
    with override_settings(AYEWORK={"ID": "uuid.uuid4"}), pytest.raises(InvalidWorkId, match="got: UUID"):
        new_id()
