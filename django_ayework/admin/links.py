"""Links to other pages of the admin, for those who may open them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.contrib.admin import AdminSite
from django.contrib.admin.exceptions import NotRegistered
from django.contrib.admin.utils import quote
from django.db.models import Model
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html

from django_ayework.admin.words import NOTHING
from django_ayework.models import Group, Work


@dataclass(frozen=True, slots=True)
class Links:
    """Makes links for one reader. A page that the reader may not open is named without a link."""

    site: AdminSite
    request: HttpRequest

    def work(self, id: str | None, text: str | None = None) -> str:
        """Return a link to a work, or a dash for none."""
        return NOTHING if id is None else linked(self.address(Work, "change", id), text or id)

    def group(self, id: str | None) -> str:
        """Return a link to a group, or a dash for none."""
        return NOTHING if id is None else linked(self.address(Group, "change", id), id)

    def about(self, label: str | None, key: str | None) -> str:
        """Return a link to the object that a work is about, if the admin has a page for it."""
        if label is None or key is None:
            return NOTHING
        try:
            model = apps.get_model(label)
        except (LookupError, ValueError):  # its app is gone
            return f"{label}:{key}"
        return linked(self.address(model, "change", key), f"{label}:{key}")

    def works_where(self, **filters: str) -> str | None:
        """Return the address of the list of works with these filters, or None."""
        address = self.address(Work, "changelist")
        return address and f"{address}?{urlencode(filters)}"

    def history(self, id: str) -> str | None:
        """Return the address of a work's history, or None."""
        return self.address(Work, "history", id)

    def address(self, model: type[Model], page: str, *keys: str) -> str | None:
        """Return the address of a page, or None when it is not there or not for this reader."""
        if not self.may_view(model):
            return None
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
        try:
            return reverse(name, args=[quote(key) for key in keys], current_app=self.site.name)
        except NoReverseMatch:
            return None

    def may_view(self, model: type[Model]) -> bool:
        """Tell whether the model has a page that the reader may open."""
        try:
            model_admin: Any = self.site.get_model_admin(model)
        except NotRegistered:
            return False
        return bool(model_admin.has_view_or_change_permission(self.request))


def linked(address: str | None, text: str) -> str:
    """Return a link as HTML, or the text alone without an address."""
    return text if address is None else format_html('<a href="{}">{}</a>', address, text)
