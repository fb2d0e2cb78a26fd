"""The addresses of the documentation: each message leads to its entry under Troubleshooting.

A page of it has the entries of one kind of message: errors, checks, commands, log, works or doctor. The
heading of an entry is the code of its messages, so the code is the anchor.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

#: The site of the last release.
SITE = "https://django-ayework.readthedocs.io/en/stable/"

E = TypeVar("E", bound=BaseException)


class Checked(Protocol):
    """The message of a system check."""

    id: str | None
    hint: str | None


M = TypeVar("M", bound=Checked)


def entry_url(page: str, code: str) -> str:
    """Return the address of an entry.

    >>> entry_url("checks", "ayework.E001")
    'https://django-ayework.readthedocs.io/en/stable/troubleshooting/checks.html#ayework-e001'
    """
    return f"{SITE}troubleshooting/{page}.html#{anchor(code)}"


def see(page: str, code: str) -> str:
    """Return the sentence that leads to an entry."""
    return f"See {entry_url(page, code)}"


def anchor(code: str) -> str:
    """Return a code as the anchor of its entry."""
    return code.lower().replace(".", "-").replace("_", "-")


def refused_as(kind: type[E], refusal: BaseException) -> E:
    """Return an error of another class with the message of an error, and its notes."""
    error = kind(str(refusal))
    for note in getattr(refusal, "__notes__", ()):
        error.add_note(note)
    return error


def text_with_notes(error: BaseException) -> str:
    """Return the message of an error and, on lines of their own, its notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def documented(error: E, code: str, page: str = "errors") -> E:
    """Return the error with a note that leads to its entry; tracebacks show notes on lines of their own."""
    error.add_note(see(page, code))
    return error


def type_error(code: str, text: str) -> TypeError:
    """Return a TypeError with a note that leads to its entry."""
    return documented(TypeError(text), code)


def value_error(code: str, text: str) -> ValueError:
    """Return a ValueError with a note that leads to its entry."""
    return documented(ValueError(text), code)


def logged(code: str) -> str:
    """Return the end of a log record, which leads to its entry."""
    return f"(see {entry_url('log', code)})"


def with_entry(message: M) -> M:
    """Return the message of a system check, with a hint that leads to its entry."""
    message.hint = " ".join(filter(None, [message.hint, see("checks", message.id or "")]))
    return message
