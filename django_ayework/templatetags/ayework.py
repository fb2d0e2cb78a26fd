"""Template tags for projects: ``{% load ayework %}``."""

from __future__ import annotations

from typing import Any

from django import template
from django.urls import NoReverseMatch

from django_ayework.progress import part_url
from django_ayework.progress import progress_url as url_of
from django_ayework.progress import watched as watched_of
from django_ayework.progress.views import figures_of

register = template.Library()


@register.inclusion_tag("django_ayework/progress/tag.html")
def work_progress(work: Any, group: bool = False, title: str = "", result_url: str = "") -> dict[str, Any]:
    """Show how far a work is, or with ``group=True`` its group; without an id nothing is shown.

    It refreshes itself if the project includes ``django_ayework.progress.urls``.
    """
    if not work:
        return {}
    watched = watched_of(work, group, title, result_url)
    try:
        live_url = part_url(watched.token())
    except NoReverseMatch:
        live_url = ""
    return {"watched": watched, "figures": figures_of(watched), "live_url": live_url}


@register.simple_tag
def progress_url(work: Any, group: bool = False, title: str = "", result_url: str = "") -> str:
    """Return the address of the progress page of a work or a group."""
    return url_of(work, group=group, title=title, result_url=result_url)
