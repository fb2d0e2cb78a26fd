"""Views of the page of metrics."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from django_ayework.conf import get_settings
from django_ayework.contrib.prometheus.page import exporter

SCHEME = "Bearer "


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Show the page to requests with ``METRICS_TOKEN``, and to staff users who may see works."""
    if not has_token(request) and not may_see_works(request):
        return HttpResponse("Expected the token of AYEWORK['METRICS_TOKEN'], or a staff user.\n", status=403)
    return page(request)


@require_safe
@never_cache
def page(request: HttpRequest) -> HttpResponse:
    """Show the page to everyone: for projects that put their own access control around it."""
    response = exporter.page()
    return HttpResponse(response.body, content_type=response.content_type, status=response.status)


def has_token(request: HttpRequest) -> bool:
    """Tell whether the request has the token of the settings."""
    token = get_settings().metrics_token
    given = request.headers.get("Authorization", "")
    return (
        token is not None
        and given.startswith(SCHEME)
        and constant_time_compare(given.removeprefix(SCHEME), token)
    )


def may_see_works(request: HttpRequest) -> bool:
    """Tell whether the user is one of the staff and may see works in the admin."""
    user = getattr(request, "user", None)
    return user is not None and user.is_active and user.is_staff and user.has_perm("django_ayework.view_work")
