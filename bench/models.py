"""The application's own table, for jobs that write."""

from __future__ import annotations

from django.db import models


class Written(models.Model):
    """What an atomic job writes."""

    number = models.BigIntegerField()

    def __str__(self) -> str:
        return str(self.number)
