from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("works/", include("django_ayework.progress.urls")),
    path("", include("example_project.audit.urls")),
]
