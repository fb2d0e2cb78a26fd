"""Arrays for PostgreSQL: whatever the texts, they come back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.store.database import fetch
from django_ayework.store.parameters import array_text


@pytest.mark.django_db
@pytest.mark.vendors("postgresql")
@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_an_array_brings_back_its_texts(values):
    assert fetch("SELECT %s::text[]", [array_text(values)]) == [(values,)]
