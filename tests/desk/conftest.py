"""A browser that is signed in as somebody who may do everything."""

import pytest
from django.contrib.auth import get_user_model

from tests.browser import complaints, resize, sign_in


@pytest.fixture
def browser(chromium, live_server):
    """The browser, signed in as a superuser; nothing that earlier tests did is left in it."""
    resize(chromium, 1280, 900)
    sign_in(chromium, live_server.url, get_user_model().objects.create_superuser("operator"))
    complaints(chromium)
    yield chromium
    chromium.get("about:blank")  # a page that refreshes itself would go on to ask the server
