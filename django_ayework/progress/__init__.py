"""Progress of a work or a group for people outside the admin: a view, and what its template tag shows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.core import signing
from django.urls import NoReverseMatch, reverse

from django_ayework.conf import get_settings
from django_ayework.documentation import documented, value_error
from django_ayework.rules.identity import require_work_id

__all__ = ["progress_token", "progress_url"]


#: Tokens of this package are of no use elsewhere, and those of others are of no use here.
SALT = "django_ayework.progress"
#: The schemes of addresses that a page links to; the first is a path on the same site.
SCHEMES = ("", "http", "https")


@dataclass(frozen=True, slots=True)
class Watched:
    """The content of a token: a work, or with ``group`` the group of that id, and the label of its page."""

    id: str
    group: bool = False
    title: str = ""
    result_url: str = ""

    def token(self) -> str:
        """Return the token, which holds all this and the moment of its making."""
        return signing.dumps([self.id, int(self.group), self.title, self.result_url], salt=SALT)


def watched(work: Any, group: bool = False, title: str = "", result_url: str = "") -> Watched:
    """Return what to watch. ``work`` is a handle, an id, a ``WorkState`` or a row of ``Work``.

    With ``group`` the group is watched that the work belongs to; an id is then that of the group. Raises
    ValueError for an id that cannot be one, and for a ``result_url`` that is not a path or an HTTP address.
    """
    if urlsplit(result_url).scheme.lower() not in SCHEMES:
        raise value_error(
            "result-url-not-usable",
            f"expected result_url to be a path or an HTTP address, got: {result_url!r}.",
        )
    id = getattr(work, "id", work)
    if group:
        id = getattr(work, "group_id", None) or id
    return Watched(require_work_id(id), group, str(title), result_url)


def progress_token(work: Any, *, group: bool = False, title: str = "", result_url: str = "") -> str:
    """Return a signed token for the progress of a work, or with ``group=True`` of its group.

    ``work`` is a handle, an id, a ``WorkState`` or a row of ``Work``. ``title`` is the heading of the page.
    ``result_url`` is linked once the work has succeeded. Anybody who has the token can see the progress, for
    ``AYEWORK["PROGRESS_MAX_AGE"]`` seconds. Raises ValueError for values that cannot be used.
    """
    return watched(work, group, title, result_url).token()


def progress_url(work: Any, *, group: bool = False, title: str = "", result_url: str = "") -> str:
    """Return the address of the progress page of a work or a group; see progress_token().

    Raises NoReverseMatch unless the project includes ``django_ayework.progress.urls``.
    """
    token = progress_token(work, group=group, title=title, result_url=result_url)
    try:
        return reverse("ayework_progress:page", args=[token])
    except NoReverseMatch as missing:
        raise documented(
            NoReverseMatch(
                f"{missing}; expected the URLs of the project to have "
                "path('works/', include('django_ayework.progress.urls'))."
            ),
            "progress-urls-missing",
        ) from None


def part_url(token: str) -> str:
    """Return the address of the part of a page that refreshes itself."""
    return reverse("ayework_progress:part", args=[token])


def watched_by(token: str) -> Watched | None:
    """Return what a token names; None for one that is forged, broken or too old."""
    try:
        seconds = get_settings().progress_max_age
        max_age = None if seconds is None else timedelta(seconds=seconds)
        id, group, title, result_url = signing.loads(token, salt=SALT, max_age=max_age)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    return Watched(id, bool(group), title, result_url)
