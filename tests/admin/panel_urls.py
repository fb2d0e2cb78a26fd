"""A project with an admin site of its own, beside the stock one, whose orders show the works about them."""

from django.contrib import admin
from django.urls import path

from django_ayework.admin import WorkAdmin
from django_ayework.admin.panel import WorkPanel
from django_ayework.models import Work
from tests.app.models import Order


class OrderAdmin(WorkPanel, admin.ModelAdmin):
    works_shown = 3


class VersionAdmin(admin.ModelAdmin):
    """Stands for an admin that another package has derived from that of Django."""


class VersionedOrderAdmin(VersionAdmin, WorkPanel):
    pass


class PickyWorkAdmin(WorkAdmin):
    """Hides some works, and keeps others from being cancelled."""

    def get_queryset(self, request):
        return super().get_queryset(request).exclude(type="shop.notify")

    def has_cancel_permission(self, request, obj=None):
        may = super().has_cancel_permission(request, obj)
        return may and (obj is None or obj.type != "shop.fail")


site = admin.AdminSite(name="desk")
site.register(Order, OrderAdmin)
site.register(Work, PickyWorkAdmin)

bare = admin.AdminSite(name="bare")
bare.register(Order, OrderAdmin)

behind = admin.AdminSite(name="behind")
behind.register(Order, VersionedOrderAdmin)
behind.register(Work, PickyWorkAdmin)

urlpatterns = [
    path("desk/", site.urls),
    path("bare/", bare.urls),
    path("behind/", behind.urls),
    path("admin/", admin.site.urls),
]
