"""Who is told of a backlog: the hook ``ON_BACKLOG``."""

from __future__ import annotations

from functools import partial

from django_ayework.conf import get_settings
from django_ayework.doers.seams import BacklogPolicy
from django_ayework.flow.events import guarded


def backlog_policy() -> BacklogPolicy | None:
    """Return whom to tell and when, as the settings say; None when nobody is to be told."""
    settings = get_settings()
    if settings.on_backlog is None or settings.backlog_after is None:
        return None
    return BacklogPolicy(
        partial(guarded, settings.on_backlog), settings.backlog_after, settings.backlog_every
    )
