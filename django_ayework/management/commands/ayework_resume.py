"""``ayework_resume``: claim works of paused types or queues again."""

from __future__ import annotations

from django_ayework.flow.controls import resume
from django_ayework.management.commands import ayework_pause


class Command(ayework_pause.Command):
    """Resume types and queues by name: all that are given, or none if one of them is refused."""

    help = "Resume types or queues that were paused."
    act = staticmethod(resume)
    acted = "resumed"
