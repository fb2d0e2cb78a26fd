"""Who looks at the overview."""

from __future__ import annotations

from tests.admin.conftest import client_with, operator, page

__all__ = ["client_with", "operator", "page"]
