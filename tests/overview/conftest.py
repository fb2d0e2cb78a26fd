"""Who looks at the overview."""

from __future__ import annotations

from tests.admin.conftest import browser, chromium, client_with, operator, page
from tests.fixtures import quick_polls

__all__ = ["browser", "chromium", "client_with", "operator", "page", "quick_polls"]
