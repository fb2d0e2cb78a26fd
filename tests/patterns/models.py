"""The models of the page."""

from tests.patterns.page import block

exec(block("What they share", "shop/models.py").code())
