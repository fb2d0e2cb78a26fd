"""The admin's addresses, for the measurement of its pages."""

from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
