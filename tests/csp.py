"""A strict Content-Security-Policy on every response: no page may need more."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase

POLICY = "default-src 'self'"


def content_security_policy(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return respond
