"""Marks that several folders use."""

import pytest

#: Of a test in a file whose others run on SQLite only: what it looks at may differ on another database.
each_database = pytest.mark.vendors("sqlite", "postgresql", "mysql")
