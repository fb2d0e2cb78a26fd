"""The page of metrics: include these in the project's ``urls.py``."""

from __future__ import annotations

from django.urls import path

from django_ayework.contrib.prometheus import views

app_name = "ayework_prometheus"
urlpatterns = [path("", views.metrics, name="metrics")]
