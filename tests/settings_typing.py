"""The settings under which tests/typing/by_name.py is written: the works of tests/typing are registered."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

OTHERS = {"tests.app", "example_project.audit"}  # their works show nothing that those of tests/typing do not
INSTALLED_APPS = [*(app for app in INSTALLED_APPS if app not in OTHERS), "tests.typing"]
ROOT_URLCONF = "tests.progress.no_urls"
