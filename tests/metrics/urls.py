from django.urls import include, path

from django_ayework.contrib.prometheus.views import page

urlpatterns = [path("metrics/", include("django_ayework.contrib.prometheus.urls")), path("open/", page)]
