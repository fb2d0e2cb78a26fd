"""The settings of a project with packages whose tasks are queued as works; see tests/packages."""

import os
import tempfile

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS, MIDDLEWARE

INSTALLED_APPS = [
    "tests.packages.gallery",
    "pictures",
    "maintenance_tasks",
    "wagtail.contrib.redirects",
    "wagtail.documents",
    "wagtail.images",
    "wagtail.users",
    "wagtail.snippets",
    "wagtail.admin",
    "wagtail",
    "modelsearch",
    "modelcluster",
    "taggit",
    "django_tasks",
    "django.contrib.postgres",
    *INSTALLED_APPS,
]
MIDDLEWARE = [*MIDDLEWARE, "wagtail.contrib.redirects.middleware.RedirectMiddleware"]
TASKS = {
    "default": {
        "BACKEND": "django_ayework.contrib.tasks.AyeworkBackend",
        "QUEUES": ["default", "pictures"],
    },
}
WAGTAIL_SITE_NAME = "Shop"
WAGTAILADMIN_BASE_URL = "http://127.0.0.1"
WAGTAILIMAGES_FEATURE_DETECTION_ENABLED = True
# Worker processes inherit the directory.
MEDIA_ROOT = os.environ.setdefault("TEST_MEDIA_ROOT", tempfile.mkdtemp(prefix="ayework-media-"))
AYEWORK = {"POLL_INTERVAL": 0.1}
