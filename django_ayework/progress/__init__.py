"""Progress of a work or a group for people outside the admin: a view, and what its template tag shows."""

from __future__ import annotations

from django_ayework.progress.tokens import progress_token, progress_url

__all__ = ["progress_token", "progress_url"]
