"""Addresses of the audit."""

from __future__ import annotations

from django.urls import path

from example_project.audit import views

app_name = "audit"
urlpatterns = [
    path("", views.index, name="index"),
    path("audits/", views.create, name="create"),
    path("audits/<int:pk>/", views.detail, name="detail"),
    path("audits/<int:pk>/live/", views.live, name="live"),
]
