"""Fragments of pages that refresh themselves.

A page includes a fragment's template in ``<div data-live="ADDRESS">``. The static module ``live.js`` asks the
address again every few seconds. The answer carries an ETag, so an unchanged fragment costs no transfer.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from django.forms.widgets import Script
from django.http import HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.cache import get_conditional_response, patch_cache_control

#: The static module. Admins of pages with fragments name it in ``Media.js``.
SCRIPT = Script("django_ayework/live.js", type="module")


def fragment(request: HttpRequest, template: str, context: Mapping[str, Any]) -> HttpResponseBase:
    """Return a fragment as HTML, or 304 for a reader that has it as it is.

    The ETag is a digest of the HTML, so a fragment must not contain what differs in each response, such as a
    CSRF token or the time of the request.
    """
    response = TemplateResponse(request, template, dict(context)).render()
    etag = f'"{blake2b(response.content, digest_size=16).hexdigest()}"'
    response["ETag"] = etag
    patch_cache_control(response, private=True, no_cache=True)
    return get_conditional_response(request, etag=etag, response=response) or response
