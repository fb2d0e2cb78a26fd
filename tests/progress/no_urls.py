"""Addresses of a project that has no progress page."""

urlpatterns: list[object] = []
