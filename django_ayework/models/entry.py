"""Keys with an end: claims and waiters."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ayework.models.fields import IdentifierField, PayloadField


class StoreEntry(models.Model):
    """A key, a value, and when it is free again."""

    key = IdentifierField(max_length=190, primary_key=True)
    value = PayloadField(blank=True)
    expires_at = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        """Pruned once expired."""

        verbose_name = _("store entry")
        verbose_name_plural = _("store entries")

    def __str__(self) -> str:
        return str(self.key)
