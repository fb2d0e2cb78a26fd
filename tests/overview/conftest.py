"""Who looks at the overview."""

from tests.admin.conftest import browser, client_with, operator, page
from tests.fixtures import quick_polls

__all__ = ["browser", "client_with", "operator", "page", "quick_polls"]
