"""The settings under which tests/typing/by_name.py is written: the works of tests/typing are registered."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.typing"]
