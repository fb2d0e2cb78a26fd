"""Addresses of the progress page: ``path("works/", include("django_ayework.progress.urls"))``."""

from __future__ import annotations

from django.urls import path

from django_ayework.progress import views

app_name = "ayework_progress"
urlpatterns = [
    path("<str:token>/", views.page, name="page"),
    path("<str:token>/part/", views.part, name="part"),
]
