"""What ran, as the handlers write it."""

from django.db import models


class Run(models.Model):
    """A handler that began: of which work, which attempt, in a worker of which release."""

    work = models.CharField(max_length=64)
    attempt = models.IntegerField()
    release = models.CharField(max_length=8)
