from django.db import models


class Order(models.Model):
    """Something of the user's own for works to read and change."""

    reference = models.CharField(max_length=64)
    paid = models.BooleanField(default=False)
    notified = models.BooleanField(default=False)

    def __str__(self) -> str:
        return self.reference
