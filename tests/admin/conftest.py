"""Who looks at the admin, and what there is to see."""

from collections.abc import Callable

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client

from tests.admin.kit import address
from tests.desk.conftest import browser

__all__ = ["browser"]

Page = Callable[..., str]


@pytest.fixture
def client_with(db):
    """Sign in a member of staff who has these permissions on the app's models."""

    def client_with(*codenames):
        user = get_user_model().objects.create_user(f"staff {'+'.join(codenames)}", is_staff=True)
        known = Permission.objects.filter(content_type__app_label="django_ayework", codename__in=codenames)
        assert known.count() == len(codenames)
        user.user_permissions.set(known)
        return signed_in(user)

    return client_with


def signed_in(user):
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator(db):
    """A superuser."""
    return signed_in(get_user_model().objects.create_superuser("operator"))


@pytest.fixture
def viewer(client_with):
    """Somebody who may look, and no more."""
    return client_with("view_work", "view_deadletter", "view_group", "view_workerprocess")


@pytest.fixture
def page(operator):
    """The text of a page, for the operator."""

    def page(name, *args, **query):
        response = operator.get(address(name, *args, **query))
        assert response.status_code == 200, response
        return response.content.decode()

    return page
