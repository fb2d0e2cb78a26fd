"""The settings of processes that tests start: without pages, whose import takes a third of their start."""

from tests.settings import *  # noqa: F403

INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_ayework", "tests.app"]
del ROOT_URLCONF  # noqa: F821
