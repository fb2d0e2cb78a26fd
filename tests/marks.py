"""Marks for the databases on which a test runs. The closest one counts: a test may overrule its file."""

import pytest
from django.conf import settings

#: What the test shows does not depend on the database.
on_sqlite = pytest.mark.vendors("sqlite")
#: What it shows may differ on each; for tests in a file whose others run on SQLite alone.
each_database = pytest.mark.vendors("sqlite", "postgresql", "mysql")
#: It needs a server: locks of rows, sessions, connections that end.
on_servers = pytest.mark.vendors("postgresql", "mysql")
#: Behind PgBouncer (see tests/pgbouncer.py) no session is the engine's own.
is_pooled = bool(settings.DATABASES["default"].get("DISABLE_SERVER_SIDE_CURSORS"))
own_session = pytest.mark.skipif(is_pooled, reason="sessions are lent here")
