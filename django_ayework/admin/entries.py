"""Entries of the Store in the database: their meaning, when they expire, and deleting one."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.actions import delete_selected
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Model, Q, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ayework.admin import lists, pages
from django_ayework.admin.action_execution import first_of
from django_ayework.admin.buttons import show_idle
from django_ayework.admin.pages import Fact, Page, Section
from django_ayework.models import StoreEntry
from django_ayework.rules.codec import RichJSON
from django_ayework.store.database import atomic, clock, rows

#: The meaning of keys, by their beginning.
KINDS: dict[str, Any] = {
    "claim:": gettext_lazy(
        "a key that works have taken with ctx.claim; once it is deleted, another may take it"
    ),
    "wait:": gettext_lazy("a caller waits for the group of this id"),
}
#: Characters of a value in the list, and in the log of a deletion.
SHOWN = 80
LOGGED = 200


def kind_of(key: str) -> str:
    """Return what a key is for, in words."""
    found = (str(text) for beginning, text in KINDS.items() if key.startswith(beginning))
    return next(found, _("a text that the project's code or a rate limit keeps in the Store"))


# Columns


@admin.display(description=gettext_lazy("key"), ordering="key")
def key(entry: StoreEntry) -> str:
    """The key."""
    return pages.printable(entry.key)


@admin.display(description=gettext_lazy("value"))
def value(entry: Any) -> str:
    """The beginning of the value."""
    return pages.first_line(pages.printable(entry.value_start), SHOWN) or pages.NOTHING


@admin.display(description=gettext_lazy("expires"))
def expires(entry: StoreEntry) -> str:
    """When the key is free again."""
    if entry.expires_at is None:
        return _("never")
    if entry.expires_at <= clock.now():
        return pages.badge("stopped", _("expired"))
    return pages.moment(entry.expires_at, clock.now())


# Search


def beginning_with(text: str) -> Q:
    """Return the condition that a key begins with a text: a range, which the index of keys serves."""
    last = ord(text[-1])
    following = 0xE000 if last == 0xD7FF else last + 1  # characters between them cannot be encoded
    if following > 0x10FFFF:
        return Q(key__gte=text)
    return Q(key__gte=text, key__lt=text[:-1] + chr(following))


@admin.register(StoreEntry)
class StoreEntryAdmin(lists.PageAdmin):
    """Keys in their order. Only deleting is possible: whatever keeps a key writes it."""

    change_form_template = "admin/django_ayework/entry.html"
    change_list_template = "admin/django_ayework/entries.html"
    deferred = ("value",)
    list_display: Any = (key, value, expires)
    ordering: ClassVar[Any] = ("key",)
    actions: Any = ("delete_selected",)
    search_fields = ("key",)  # see get_search_results()
    search_help_text = gettext_lazy("A key, or its beginning.")

    def for_list(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return entries with the beginning of their values."""
        light: QuerySet[Any] = super().for_list(rows).annotate(value_start=Left("value", 2 * SHOWN))
        return light

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find entries by the beginning of their keys."""
        return (queryset.filter(beginning_with(search_term)) if search_term else queryset), False

    def page_context(self, request: HttpRequest, obj: StoreEntry) -> dict[str, Any]:
        """Return the page of an entry."""
        facts = [
            Fact(_("key"), pages.printable(obj.key), wide=True),
            Fact(_("purpose"), kind_of(obj.key), wide=True),
            Fact(_("expires"), _("never") if obj.expires_at is None else pages.full_moment(obj.expires_at)),
            Fact(
                _("value"),
                pages.boxed(pages.readable(obj.value, RichJSON())) if obj.value else pages.NOTHING,
                True,
            ),
        ]
        may_delete = self.has_delete_permission(request, obj)
        return {
            "page": Page(_("Store entry"), [Section(_("Store entry"), facts)]),
            "delete_url": self.address("delete", obj.pk) if may_delete else None,
            "history_url": self.address("history", obj.pk),
        }

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Tell whether the user may delete entries."""
        return self.is_allowed(request, "delete")

    def delete_model(self, request: HttpRequest, obj: StoreEntry) -> None:
        """Delete an entry where the queue is."""
        rows(StoreEntry).filter(key=obj.pk).delete()

    @admin.action(permissions=["delete"], description=delete_selected.short_description)  # type: ignore[attr-defined]
    def delete_selected(self, request: HttpRequest, chosen: QuerySet[StoreEntry]) -> HttpResponseBase | None:
        """Delete the first of the ticked entries, and log that, both or neither; ask first."""
        note = _("These are the first %(count)d of the selection; repeat the action for the others.")
        keys = [entry.pk for entry in first_of(chosen.only("key"), request, note)]
        if not keys:  # others have deleted them
            show_idle(request, self.opts.verbose_name_plural)
            return None
        found = chosen.filter(pk__in=keys)
        if "post" not in request.POST:
            return delete_selected(self, request, found)
        with atomic():
            return delete_selected(self, request, found.select_for_update())

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Write who deleted what into the log, with the beginning of each value."""
        from django.contrib.admin.models import DELETION, LogEntry  # needs an installed admin

        user: AbstractBaseUser = request.user  # type: ignore[assignment]
        for entry in rows(StoreEntry).filter(key__in=[entry.pk for entry in queryset]):
            text = _("Deleted. Its value was: %(value)s") % {"value": pages.printable(entry.value)[:LOGGED]}
            LogEntry.objects.log_actions(user.pk, [entry], DELETION, text)
