"""Requests that the database refuses: a message says what it said, and the page stays.

A database may be read-only during a failover, hold a row for somebody else, or end a statement that takes too
long. Requests that only read raise its error, as everywhere in Django.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from django.contrib import messages
from django.db import Error, transaction
from django.http import HttpRequest, HttpResponseRedirect
from django.utils.translation import gettext_lazy

from django_ayework.flow.hooks import report
from django_ayework.flow.startup_checks import in_one_line
from django_ayework.rules.formatting import sentence
from django_ayework.store.database import alias, connection

View = TypeVar("View", bound=Callable[..., Any])

#: The messages on a refused request, on one object of several, and on a refused entry of the log.
NOTHING = gettext_lazy("Nothing was changed, as the database has refused it: %(error)s")
OF_ONE = gettext_lazy("%(object)s was not changed, as the database has refused it: %(error)s")
OF_LOG = gettext_lazy("The database has refused to write this into the log of the admin: %(error)s")


def show_refusal(request: HttpRequest, error: Error, text: Any = NOTHING, **names: Any) -> None:
    """Show and report the error by which the database has refused a statement."""
    report(error, "queue", f"the database has refused {request.path}")
    messages.error(request, text % {"error": sentence(in_one_line(error)), **names})


def refused(request: HttpRequest, error: Error, back: str) -> HttpResponseRedirect:
    """Show the error by which the database has refused a change, and return to a page."""
    database = connection()
    if database.in_atomic_block and database.settings_dict["ATOMIC_REQUESTS"]:
        transaction.set_rollback(True, using=alias())
    show_refusal(request, error)
    return HttpResponseRedirect(back)


def shows_refusals(view: View) -> View:
    """Let a page that is sent to its own address show again, with a message, if the database refuses it."""

    @wraps(view)
    def answer(model_admin: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            return view(model_admin, request, *args, **kwargs)
        except Error as error:
            if request.method != "POST":
                raise
            return refused(request, error, request.get_full_path())

    return answer  # type: ignore[return-value]
