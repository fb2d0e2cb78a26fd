"""Settings of processes whose database cannot be used as it is: ``TEST_DATABASE`` says why."""

import os

from tests.settings_process import *  # noqa: F403
from tests.settings_process import DATABASES

database = DATABASES["default"]
postgresql = database["ENGINE"].endswith("postgresql")
match os.environ["TEST_DATABASE"]:
    case "isolated by the driver":
        from psycopg import IsolationLevel

        database["OPTIONS"]["isolation_level"] = IsolationLevel.REPEATABLE_READ
    case "isolated" if postgresql:
        database["OPTIONS"]["options"] = "-c default_transaction_isolation=serializable"
    case "isolated":
        database["OPTIONS"]["isolation_level"] = "repeatable read"
    case "away" if database["ENGINE"].endswith("sqlite3"):
        database["NAME"] = "/nowhere/queue.sqlite3"
    case "away":
        database |= {"HOST": "127.0.0.1", "PORT": 1}
    case "without tables":
        DATABASE_ROUTERS = ["tests.commands.settings_unusable.NoTables"]


class NoTables:
    """Allows no table of this app."""

    def allow_migrate(self, db: str, app_label: str, **hints: object) -> bool | None:
        return False if app_label == "django_ayework" else None
