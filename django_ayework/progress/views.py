"""The progress page, and the part of it that refreshes itself. Who has the token may see them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.cache import patch_cache_control
from django.views.decorators.http import require_safe

from django_ayework.fragments import fragment
from django_ayework.progress import part_url, watched_by
from django_ayework.progress.figures import figures_of

PAGE = "django_ayework/progress/page.html"
PART = "django_ayework/progress/part.html"
NOT_FOUND = "django_ayework/progress/not_found.html"


@require_safe
def page(request: HttpRequest, token: str) -> HttpResponseBase:
    """Show the progress page of a token."""
    context = context_of(token)
    if context is None:
        return not_found(request)
    return unlisted(TemplateResponse(request, PAGE, context))


@require_safe
def part(request: HttpRequest, token: str) -> HttpResponseBase:
    """Return the part of the page that changes."""
    context = context_of(token)
    return not_found(request) if context is None else unlisted(fragment(request, PART, context))


def context_of(token: str) -> dict[str, Any] | None:
    """Return what the templates show; None for a token of no use, and for a work that is gone."""
    watched = watched_by(token)
    figures = None if watched is None else figures_of(watched)
    if watched is None or figures is None:
        return None
    return {"watched": watched, "figures": figures, "live_url": part_url(token)}


def not_found(request: HttpRequest) -> HttpResponse:
    """Return the same answer for every token of no use, so nobody can find out which works exist."""
    response = TemplateResponse(request, NOT_FOUND, {}, status=404)
    unlisted(response)
    return response


def unlisted(response: HttpResponseBase) -> HttpResponseBase:
    """Keep the address, which holds the token, from caches, search engines and other sites."""
    response["X-Robots-Tag"] = "noindex, nofollow"
    response["Referrer-Policy"] = "same-origin"
    patch_cache_control(response, private=True, no_cache=True)
    return response
