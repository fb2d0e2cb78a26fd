"""A model whose pictures django-pictures makes smaller copies of."""

from __future__ import annotations

from django.db import models
from pictures.models import PictureField


class Photo(models.Model):
    """A photo and its title."""

    title = models.CharField(max_length=50)
    picture = PictureField(file_types=["WEBP"], aspect_ratios=[None, "1/1"])
