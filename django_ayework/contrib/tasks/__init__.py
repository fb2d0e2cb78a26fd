"""The backend for Django's tasks: ``django.tasks`` from Django 6.0 on, ``django_tasks`` before.

Apps import their tasks while Django loads their models. So this package imports no models, and neither does
a backend that is made or a task that is validated.
"""

from django_ayework.contrib.tasks.backend import AyeworkBackend, discover
from django_ayework.contrib.tasks.calls import task_options
from django_ayework.define.types import registry

registry.sources.append(discover)

__all__ = ["AyeworkBackend", "task_options"]
