"""Schedules: what is declared, and when it fires."""

from __future__ import annotations

import pytest
from django.conf import settings

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


@pytest.fixture(autouse=True)
def undeclared():
    """No schedule outlives its test."""
    from django_ayework.define.schedules import schedules

    before = list(schedules)
    yield
    for declared in schedules:
        if declared not in before:
            declared.cancel()
