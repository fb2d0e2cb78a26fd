"""Pages of the admin with a part that refreshes itself: see ``django_ayework.live``."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import URLPattern

from django_ayework.admin.lists import PageAdmin
from django_ayework.live import SCRIPT, fragment

__all__ = ["SCRIPT", "LiveAdmin", "fragment"]


class LiveAdmin(PageAdmin):
    """Rows whose page has a part that refreshes itself."""

    #: The template of the part.
    live_template = "admin/django_ayework/sections.html"

    def live_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Return the template variables of the part."""
        raise NotImplementedError

    def may_refresh(self, request: HttpRequest, obj: Any) -> bool:
        """Tell whether the user may look at the part; ``obj`` is None for an id that does not exist."""
        return self.has_view_or_change_permission(request, obj)

    def get_urls(self) -> list[URLPattern]:
        """Add the address of the part."""
        return [self.row_path("live", self.live_view), *super().get_urls()]

    def live_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Return the part of a row's page."""
        obj = self.row_for(request, object_id, partial(self.may_refresh, request))
        return fragment(request, self.live_template, self.live_context(request, obj))
