"""A group: all works that come from one root."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ayework.models.fields import IdentifierField, PayloadField


class Group(models.Model):
    """Counts and value of a group of several works. Its id is that of its root work."""

    id = IdentifierField(max_length=64, primary_key=True)
    open = models.IntegerField(default=0)  # members that have not ended
    total = models.IntegerField(default=0)
    dead = models.IntegerField(default=0)
    value = PayloadField(null=True, blank=True)  # null: nobody has contributed
    final = models.BooleanField(default=False)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """No index besides the key: groups are found through their works."""

        verbose_name = _("group")
        verbose_name_plural = _("groups")

    def __str__(self) -> str:
        return str(self.id)
