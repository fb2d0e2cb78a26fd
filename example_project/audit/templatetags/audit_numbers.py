"""Numbers in templates."""

from __future__ import annotations

from django import template

from example_project.audit.terminal import readable_size

register = template.Library()


@register.filter
def grouped(number: int) -> str:
    """Return a number with its thousands set apart.

    >>> grouped(1234567)
    '1,234,567'
    """
    return f"{number:,}"


register.filter("readable_size", readable_size)
