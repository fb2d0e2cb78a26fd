"""The settings of the measurements, on the database of the shared harness."""

import os

import common

if os.environ["BENCH_SHARED"] == "pg":
    os.environ["DATABASE_URL"] = common.PG_DSN
else:
    os.environ["DATABASE_URL"] = f"sqlite:///{os.path.abspath(common.STATE)}/ayework.sqlite3"

from bench.settings import *  # noqa: F403
from bench.settings import INSTALLED_APPS as OWN_APPS

INSTALLED_APPS = [*OWN_APPS, "bench.shared"]
