"""Works about an object, on the page that a project's own admin has of the object."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from django_ayework import cancel, dependency, enqueue
from django_ayework.models import Work
from django_ayework.testing import drain, time_travel
from tests.admin.kit import assert_shows
from tests.app.models import Order
from tests.app.works import add, fail, notify
from tests.browser import complaints, resize

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def desk(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.admin.panel_urls"


@pytest.fixture
def order(db: None) -> Order:
    return Order.objects.create(reference="A-17")


def page_of(order: Order, site: str = "desk") -> str:
    return reverse(f"{site}:shop_order_change", args=[order.pk])


def shown(client: Client, order: Order, site: str = "desk") -> str:
    response = client.get(page_of(order, site))
    assert response.status_code == 200
    return response.content.decode()


def test_the_last_works_about_the_object_are_shown(operator: Client, order: Order) -> None:
    old, *works = [enqueue(add(a=1, b=number), about=order) for number in range(4)]
    other = enqueue(add(a=1, b=2), about=Order.objects.create(reference="B"))
    text = shown(operator, order)
    for work in works:
        assert f"/desk/django_ayework/work/{work.id}/change/" in text
        assert f'formaction="/desk/django_ayework/work/{work.id}/cancel/"' in text
    assert old.id not in text
    assert other.id not in text


def test_each_work_says_in_a_sentence_why_it_stands_so(operator: Client, order: Order) -> None:
    enqueue(fail(message="<b>no luck"), about=order)
    drain(raises=False)
    first = enqueue(add(a=1, b=2), delay=3600)
    enqueue(dependency(on=[first], queue=[add(a=1, b=2)]), about=order)
    cancel(enqueue(add(a=1, b=2), about=order).id)
    text = shown(operator, order)
    assert_shows(text, "It will be tried again at", "RuntimeError: &lt;b&gt;no luck")
    assert_shows(text, "It waits for others: 0 of 1 have succeeded.", "It was cancelled at")
    for _ in range(5):
        time_travel(60)
        drain(raises=False)
    enqueue(add(a=1, b=2), about=order, delay=60)
    text = shown(operator, order)
    assert "It starts at" in text
    time_travel(4000)
    drain(raises=False)
    assert "It succeeded at" in shown(operator, order)


def test_a_dead_work_says_what_it_died_of_and_can_be_retried(operator: Client, order: Order) -> None:
    work = enqueue(fail(), about=order)
    for _ in range(5):
        drain(raises=False)
        time_travel(60)
    text = shown(operator, order)
    assert "(exhausted)" in text
    retry = f"/desk/django_ayework/work/{work.id}/retry/"
    assert f'formaction="{retry}"' in text
    operator.post(retry)
    assert Work.objects.get().status == "pending"


def test_the_admin_of_works_decides_what_is_shown_and_offered(operator: Client, order: Order) -> None:
    hidden = enqueue(notify(order_id=order.pk), about=order)
    kept = enqueue(fail(), about=order)
    text = shown(operator, order)
    assert hidden.id not in text
    assert kept.id in text
    assert f"{kept.id}/cancel/" not in text


def test_without_the_permission_to_look_at_works_there_is_no_panel(
    client_with: Callable[..., Client], order: Order
) -> None:
    work = enqueue(add(a=1, b=2), about=order)

    def of_user(*codenames: str) -> str:
        client = client_with(*codenames)
        user = get_user_model().objects.get(username=f"staff {'+'.join(codenames)}")
        user.user_permissions.add(
            Permission.objects.get(content_type__app_label="shop", codename="view_order")
        )
        return shown(client, order)

    assert "Works about this" not in of_user()
    looking = of_user("view_work")
    assert work.id in looking
    assert "/cancel/" not in looking


def test_a_site_without_works_has_no_panel(operator: Client, order: Order) -> None:
    assert "Works about this" not in shown(operator, order, "bare")
    assert "Works about this" not in operator.get(reverse("desk:shop_order_add")).content.decode()


def test_an_object_without_works_says_so(operator: Client, order: Order) -> None:
    assert "No work is about this." in shown(operator, order)


def test_the_panel_costs_two_queries(operator: Client, order: Order, django_assert_num_queries: Any) -> None:
    first = enqueue(add(a=1, b=2))
    for _ in range(3):
        enqueue(dependency(on=[first], queue=[add(a=1, b=2)]), about=order)
    operator.get(page_of(order, "bare"))  # reads the content type of orders, which is cached
    with django_assert_num_queries(3):  # with the session, the user and the order
        operator.get(page_of(order, "bare"))
    with django_assert_num_queries(5):
        operator.get(page_of(order))


def test_the_object_can_still_be_saved(operator: Client, order: Order) -> None:
    enqueue(add(a=1, b=2), about=order)
    operator.post(page_of(order), {"reference": "changed"})
    order.refresh_from_db()
    assert order.reference == "changed"


def test_the_page_keeps_the_project_s_template(
    operator: Client, order: Order, settings: Any, tmp_path: Path
) -> None:
    place = tmp_path / "admin" / "shop" / "order"
    place.mkdir(parents=True)
    ours = "{% extends 'admin/change_form.html' %}{% block after_related_objects %}of the shop{% endblock %}"
    (place / "change_form.html").write_text(ours)
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [str(tmp_path)]}]
    text = shown(operator, order)
    assert text.index("of the shop") < text.index("Works about this")


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_a_work_is_cancelled_from_the_page_of_its_object(browser: Any, live_server: Any) -> None:
    order = Order.objects.create(reference="A-17")
    enqueue(add(a=1, b=2), about=order)
    resize(browser, 420)
    browser.get(live_server.url + page_of(order))
    script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(script) <= 0
    browser.find_element("name", "reference").send_keys("not saved")
    browser.find_element("css selector", "button[formaction$='/cancel/']").click()
    assert "1 work was cancelled." in browser.find_element("class name", "messagelist").text
    assert Work.objects.get().status == "cancelled"
    order.refresh_from_db()
    assert order.reference == "A-17"
    assert not complaints(browser)
