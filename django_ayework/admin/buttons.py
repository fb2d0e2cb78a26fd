"""Pages with buttons. Each posts to an address of its own, and asks a permission."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import ValidationError
from django.db import Error
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from django_ayework.admin import lists
from django_ayework.admin.pages import printable
from django_ayework.admin.refusals import OF_ONE, refused, show_refusal
from django_ayework.errors import AyeworkError
from django_ayework.store.database import in_own_transaction, in_transaction


@dataclass(frozen=True, slots=True)
class Button:
    """A button: the last part of its address, its text, and a sentence on its effect."""

    name: str
    label: Any
    help: Any = ""


class Shown(NamedTuple):
    """A button on a page, and the address that it posts to."""

    name: str
    label: Any
    help: Any
    url: str


class ButtonsAdmin(lists.PageAdmin):
    """Pages of rows with ``buttons``."""

    buttons: ClassVar[Sequence[Any]] = ()

    def may_press(self, button: Any, request: HttpRequest, obj: Any) -> bool:
        """Tell whether the user has the permission for a button of this row."""
        raise NotImplementedError

    def offers(self, button: Any, obj: Any) -> bool:
        """Tell whether a row is in a state in which the button does something."""
        return True

    def press(self, button: Any, request: HttpRequest, obj: Any) -> HttpResponse | None:
        """Act on a row and show messages, or return a page that asks first."""
        raise NotImplementedError

    def address_after(self, request: HttpRequest, obj: Any) -> str:
        """Return the address to show after an act."""
        return self.address("change", obj.pk)

    def shown_buttons(self, request: HttpRequest, obj: Any) -> list[Shown]:
        """Return the buttons that the user may press on the page of a row."""
        return [
            Shown(button.name, button.label, button.help, self.address(button.name, obj.pk))
            for button in self.buttons
            if self.offers(button, obj) and self.may_press(button, request, obj)
        ]

    def get_urls(self) -> list[URLPattern]:
        """Add the addresses that the buttons post to."""
        addresses = [self.row_path(each.name, partial(self.button_view, each)) for each in self.buttons]
        return [*addresses, *super().get_urls()]

    def button_view(self, button: Any, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Act on a row that the user may see and act on; then show its page."""
        if request.method != "POST":
            return self.not_pressed(request)
        try:
            obj = self.row_for(request, object_id, partial(self.may_press, button, request))
        except Http404:
            return self.not_there(request, unquote(object_id))
        back = self.address_after(request, obj)
        try:
            return self.press(button, request, obj) or HttpResponseRedirect(back)
        except Error as error:
            return refused(request, error, back)

    def not_there(self, request: HttpRequest, id: str) -> HttpResponse:
        """Return the page for the button of a row that others have deleted, or removed from the list."""
        sentence = _("%(kind)s %(id)s: it is no longer in this list, so nothing was done.")
        values = {"kind": capfirst(self.opts.verbose_name), "id": printable(id)}
        context = {"title": _("Nothing was done"), "sentence": sentence % values}
        return self.framed(request, "refused.html", context, 404)


@dataclass(frozen=True, slots=True)
class LoggedButton(Button):
    """A button that is also an action of the list.

    ``logged`` goes into the log and names the ``state`` before. ``said`` is the message to the user and names
    the row as ``name``. ``selected`` is the text of the action, and ``counted`` its message.
    """

    logged: Any = ""
    said: Any = ""
    selected: Any = ""
    counted: Any = ""


class LoggedButtonsAdmin(ButtonsAdmin):
    """Pages whose buttons carry out a command at once, and write the state before into the log."""

    buttons: ClassVar[Sequence[LoggedButton]] = ()

    def response_action(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse | None:
        """Act on the ticked rows; ids that no row can have are as good as not ticked."""
        posted: Any = request.POST.copy()
        ticked = [id for id in posted.getlist(ACTION_CHECKBOX_NAME) if can_be_key(self.model, id)]
        posted.setlist(ACTION_CHECKBOX_NAME, ticked)
        request.POST = posted
        return super().response_action(request, *args, **kwargs)

    def has_command_permission(self, request: HttpRequest) -> bool:
        """Tell whether the user may press the buttons."""
        return self.is_allowed(request, "change")

    def may_press(self, button: Any, request: HttpRequest, obj: Any) -> bool:
        """Tell whether the user may press the buttons: all rows are alike."""
        return self.has_command_permission(request)

    def state_in_words(self, obj: Any) -> Any:
        """Return the state of a row."""
        raise NotImplementedError

    def carry_out(self, name: str, obj: Any) -> bool:
        """Carry out the command of the button with this name; return whether that changed anything.

        May raise AyeworkError.
        """
        raise NotImplementedError

    def press(self, button: LoggedButton, request: HttpRequest, obj: Any) -> None:
        """Carry out a command for the user of a request; show and log it."""
        if not self.offers(button, obj):
            show_idle(request, obj)
        elif self.pressed(button, request, [obj]):
            messages.success(request, button.said % {"name": getattr(obj, "name", "") or obj})

    def pressed(self, button: LoggedButton, request: HttpRequest, chosen: Iterable[Any]) -> int:
        """Carry out a command on rows that are open to it, and log it; return on how many it succeeded.

        The rows behind one that the database refuses to change are left alone.
        """
        done = 0
        for obj in chosen:
            if not self.offers(button, obj) or not self.may_press(button, request, obj):
                continue
            logged = button.logged % {"state": self.state_in_words(obj)}
            try:
                is_done = in_own_transaction(self.carry_out_logged, button, request, obj, logged)
            except AyeworkError as refusal:
                messages.error(request, str(refusal))
            except Error as error:
                if in_transaction():
                    raise
                show_refusal(request, error, OF_ONE, object=obj)
                break
            else:
                done += is_done
                if not is_done:
                    show_idle(request, obj)
        return done

    def carry_out_logged(self, button: LoggedButton, request: HttpRequest, obj: Any, sentence: str) -> bool:
        """Carry out the command of a button, and write a sentence into the log: both, or neither."""
        is_done = self.carry_out(button.name, obj)
        if is_done:
            self.log_change(request, obj, sentence)
        return is_done


def can_be_key(model: type[Model], text: str) -> bool:
    """Tell whether a row can have this key: where keys are numbers, others cannot be looked for."""
    try:
        model._meta.pk.clean(text, None)
    except ValidationError:
        return False
    return True


def show_idle(request: HttpRequest, obj: Any) -> None:
    """Show that a row, or all ticked ones, was as the command would leave it, or was gone."""
    messages.warning(request, _("%(object)s: there was nothing to do.") % {"object": obj})


def selection_of(button: LoggedButton) -> Callable[..., None]:
    """Return the action of a list that presses a button of each ticked row."""

    @admin.action(description=button.selected, permissions=["command"])
    def selected(model_admin: LoggedButtonsAdmin, request: HttpRequest, chosen: Iterable[Any]) -> None:
        count = model_admin.pressed(button, request, chosen)
        model_admin.message_user(request, button.counted % {"count": count})

    selected.__name__ = f"{button.name}_selected"
    return selected
