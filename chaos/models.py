"""The application's own table."""

from __future__ import annotations

from django.db import models


class Effect(models.Model):
    """What a handler has written. Nothing is unique, so that a second effect can be seen."""

    work = models.CharField(max_length=64)
    kind = models.CharField(max_length=16)

    def __str__(self) -> str:
        return f"{self.kind} of {self.work}"
