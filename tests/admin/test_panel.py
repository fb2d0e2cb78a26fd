"""Works about an object, on the page that a project's own admin has of the object."""

import pytest
from django.contrib.admin import ModelAdmin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.urls import reverse

from django_ayework import cancel, dependency, enqueue
from django_ayework.admin.panel import WorkPanel
from django_ayework.models import Work
from django_ayework.testing import drain, time_travel
from tests.admin.kit import assert_hides, assert_shows
from tests.app.models import Order
from tests.app.works import add, fail, notify
from tests.browser import complaints, resize
from tests.desk.test_every_page import overflow
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


@pytest.fixture(autouse=True)
def desk(settings):
    settings.ROOT_URLCONF = "tests.admin.panel_urls"


@pytest.fixture
def order(db):
    return Order.objects.create(reference="A-17")


def page_of(order, site="desk"):
    return reverse(f"{site}:shop_order_change", args=[order.pk])


@pytest.fixture
def shown(operator, order):
    """Return the page of the order as somebody sees it."""

    def shown(site="desk", client=operator):
        response = client.get(page_of(order, site))
        assert response.status_code == 200
        return response.content.decode()

    return shown


@each_database
def test_the_last_works_about_the_object_are_shown(shown, order):
    assert "No work is about this." in shown()
    old, *works = [enqueue(add(a=1, b=number), about=order).id for number in range(4)]
    other = enqueue(add(a=1, b=2), about=Order.objects.create(reference="B")).id
    text = shown()
    for id in works:
        url = f"/desk/django_ayework/work/{id}"
        assert_shows(text, f"{url}/change/", f'formaction="{url}/cancel/"')
    assert_hides(text, old, other)


def test_each_work_says_in_a_sentence_why_it_stands_so(operator, shown, order):
    dead = enqueue(fail(message="<b>no luck"), about=order)
    drain(raises=False)
    first = enqueue(add(a=1, b=2), delay=3600)
    enqueue(dependency(on=[first], queue=[add(a=1, b=2)]), about=order)
    cancel(enqueue(add(a=1, b=2), about=order).id)
    text = shown()
    assert_shows(text, "It will be tried again at", "RuntimeError: &lt;b&gt;no luck")
    assert_shows(text, "It waits for others: 0 of 1 have succeeded.", "It was cancelled at")
    for _ in range(5):
        time_travel(60)
        drain(raises=False)
    retry = f"/desk/django_ayework/work/{dead.id}/retry/"
    assert_shows(shown(), "(exhausted)", f'formaction="{retry}"')
    operator.post(retry)
    assert Work.objects.get(id=dead.id).status == "pending"
    enqueue(add(a=1, b=2), about=order, delay=60)
    assert "It starts at" in shown()
    time_travel(4000)
    drain(raises=False)
    assert "It succeeded at" in shown()


def test_the_admin_of_works_decides_what_is_shown_and_offered(shown, order):
    hidden, kept = enqueue(notify(order_id=order.pk), about=order), enqueue(fail(), about=order)
    text = shown()
    assert kept.id in text
    assert_hides(text, hidden.id, f"{kept.id}/cancel/")


def test_without_the_permission_to_look_at_works_there_is_no_panel(client_with, shown, order):
    work = enqueue(add(a=1, b=2), about=order)
    to_view = Permission.objects.get(content_type__app_label="shop", codename="view_order")
    for codenames, parts in (((), []), (("view_work",), ["Works about this", work.id])):
        client = client_with(*codenames)
        get_user_model().objects.latest("id").user_permissions.add(to_view)
        text = shown(client=client)
        assert [part for part in ("Works about this", work.id, "/cancel/") if part in text] == parts


def test_a_site_without_works_has_no_panel(operator, shown):
    assert "Works about this" not in shown("bare")
    assert "Works about this" not in operator.get(reverse("desk:shop_order_add")).content.decode()


def test_the_panel_costs_two_queries_and_the_object_can_still_be_saved(
    operator, order, django_assert_num_queries
):
    first = enqueue(add(a=1, b=2))
    for _ in range(3):
        enqueue(dependency(on=[first], queue=[add(a=1, b=2)]), about=order)
    operator.get(page_of(order, "bare"))  # reads the content type of orders, which is cached
    for site, queries in (("bare", 3), ("desk", 5)):  # with the session, the user and the order
        with django_assert_num_queries(queries):
            operator.get(page_of(order, site))
    operator.post(page_of(order), {"reference": "changed"})
    order.refresh_from_db()
    assert order.reference == "changed"


def test_the_page_keeps_the_project_s_template(shown, settings, tmp_path):
    place = tmp_path / "admin" / "shop" / "order"
    place.mkdir(parents=True)
    ours = "{% extends 'admin/change_form.html' %}{% block after_related_objects %}of the shop{% endblock %}"
    (place / "change_form.html").write_text(ours)
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [str(tmp_path)]}]
    text = shown()
    assert text.index("of the shop") < text.index("Works about this")


def test_the_panel_is_shown_also_if_it_stands_behind_an_admin_of_another_package(shown):
    assert "Works about this" in shown("behind")
    with pytest.raises(TypeError):
        type("OrderAdmin", (ModelAdmin, WorkPanel), {})


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_a_work_is_cancelled_from_the_page_of_its_object(browser, live_server, order):
    enqueue(add(a=1, b=2), about=order)
    resize(browser, 420)
    browser.get(live_server.url + page_of(order))
    assert overflow(browser) <= 0
    browser.find_element("name", "reference").send_keys("not saved")
    browser.find_element("css selector", "button[formaction$='/cancel/']").click()
    assert "1 work was cancelled." in browser.find_element("class name", "messagelist").text
    assert Work.objects.get().status == "cancelled"
    order.refresh_from_db()
    assert order.reference == "A-17"
    assert not complaints(browser)
