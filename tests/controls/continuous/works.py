"""A continuous type. Only processes that install this app know it, as every worker would queue its works."""

from __future__ import annotations

from django_ayework import work


@work(name="controls.poll", interval=60)
def poll() -> None:
    """Do nothing."""
