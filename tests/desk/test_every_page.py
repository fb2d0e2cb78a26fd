"""Every page of the desk in a browser: accessible, no wider than a phone, safe from hostile texts."""

from typing import Any

import pytest
from selenium_axe_python import Axe

from django_ayework.testing.factories import ScheduleFactory, StoreEntryFactory
from tests.admin.kit import address
from tests.browser import complaints, resize
from tests.desk.population import pages, populate

pytestmark = [
    pytest.mark.browser,
    pytest.mark.vendors("sqlite"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(400),
]

SEVERE = ("critical", "serious")
#: Grave violations of the pages that Django itself makes, by rule: the elements that have them.
OF_DJANGO = {
    "link-in-text-block": ".breadcrumbs a, #changelist-search .quiet a",
    "label-title-only": "#searchbar",
    "label": ".vDateField, .vTimeField",
}
#: axe-core describes no rules that hold. It loads no media for its rule about sounds: the pages have none.
#: Each of the two would take a third of its time. The driver passes no false.
OPTIONS: dict[str, Any] = {"resultTypes": ["violations"], "preload": 0}
WIDE, NARROW = 1400, 320
#: The rules whose result depends on the theme, and the one whose result depends on the width.
OF_COLOURS = OPTIONS | {"runOnly": ["color-contrast", "link-in-text-block"]}
OF_WIDTH = OPTIONS | {"runOnly": ["scrollable-region-focusable"]}


def violations(browser, options=OPTIONS):
    """Return the grave violations that axe-core finds on the page, each with its element."""
    axe = Axe(browser)
    if not browser.execute_script("return Boolean(window.axe)"):
        axe.inject()
    return [
        f"{found['id']}: {node['target'][0]}: {node['html'][:120]}"
        for found in axe.run(options=options)["violations"]
        if found["impact"] in SEVERE
        for node in found["nodes"]
        if not is_of_django(browser, found["id"], str(node["target"][0]))
    ]


def darken(browser, width):
    """Show the page in the dark theme, and wait until its colours have faded into those."""
    resize(browser, width, dark=True)
    fading = "document.getAnimations().map(each => each instanceof CSSTransition && each.finished)"
    browser.execute_async_script(
        f"const done = arguments[0]; Promise.all({fading}).then(() => done(), () => done())"
    )


def is_of_django(browser, rule, element):
    """Tell whether Django makes the element that violates the rule."""
    script = "return document.querySelector(arguments[0]).matches(arguments[1])"
    return rule in OF_DJANGO and bool(browser.execute_script(script, element, OF_DJANGO[rule]))


def overflow(browser):
    """Return by how many pixels the page is wider than the window."""
    script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(browser.execute_script(script))


def test_every_page_is_accessible_in_both_themes_fits_and_is_safe(browser, live_server):
    """Only the first look is at all rules: the theme and the width change the results of few."""
    populate()
    found = []
    for name, url in pages().items():
        resize(browser, WIDE)
        browser.get(live_server.url + url)
        found += [f"{name}: {each}" for each in (*complaints(browser), *violations(browser))]
        darken(browser, WIDE)
        found += [f"{name} in the dark: {each}" for each in violations(browser, OF_COLOURS)]
        resize(browser, NARROW)
        found += [f"{name} on a phone: {each}" for each in violations(browser, OF_WIDTH)]
        if (pixels := overflow(browser)) > 0:
            found.append(f"{name}: {pixels} pixels too wide")
        complaints(browser)  # axe-core styles what it looks at
        if browser.execute_script("return window.broken"):
            found.append(f"{name}: a hostile text became markup")
    assert not found, "\n".join(found)


def test_a_long_name_without_a_space_fits(browser, live_server):
    schedule, entry = ScheduleFactory(name="n" * 128), StoreEntryFactory(key="k" * 190)
    resize(browser, NARROW)
    for name, key in (("schedule_change", str(schedule.pk)), ("storeentry_change", entry.key)):
        browser.get(live_server.url + address(name, key))
        assert overflow(browser) <= 0, name
