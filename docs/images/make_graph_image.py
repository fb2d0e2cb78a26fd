"""Make ``graph.png``: a workflow that a dead work holds up, as its page in the admin shows it.

    python docs/images/make_graph_image.py [directory]

Needs what ``make_admin_image.py`` needs. With a directory, pictures of several workflows go there instead:
light and dark, on a wide and on a narrow screen.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.urls import reverse
from make_admin_image import HERE, SCRATCH, browser, served, sign_in, start

from django_ayework import Abort, Context, dependency, enqueue, work
from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.testing import drain, time_travel

#: Shops whose sales cannot be fetched.
BROKEN: set[int] = set()


@work(name="report.fetch")
def fetch(ctx: Context, shop: int) -> Any:
    """Fetch the sales of a shop."""
    if shop in BROKEN:
        raise Abort(f"shop {shop} answers with status 503")
    return ctx.result(shop)


@work(name="report.rates")
def rates() -> None:
    """Fetch the rates of exchange."""


@work(name="report.add_up")
def add_up() -> None:
    """Add up the sales."""


@work(name="report.draw")
def draw(chart: str) -> None:
    """Draw a chart."""


@work(name="report.send")
def send(to: str) -> None:
    """Send the report."""


@work(name="report.publish")
def publish() -> None:
    """Publish the report."""


@work(name="report.month")
def month(ctx: Context, month: str, shops: int) -> Any:
    """Fetch everything, add it up, draw charts, send the report."""
    sales = [fetch(shop=number) for number in range(shops)]
    exchange = rates()
    charts = [draw(chart=name) for name in ("by day", "by shop", "by article")]
    mails = [send(to=name) for name in ("ada@example.com", "bob@example.com")]
    total = add_up()
    return ctx.queue(
        [
            *sales,
            exchange,
            dependency(on=[*sales, exchange], queue=[total]),
            dependency(on=[total], queue=charts),
            dependency(on=charts, queue=[*mails, publish()]),
        ]
    )


@work(name="orders.reserve")
def reserve(ctx: Context) -> Any:
    """Reserve the goods."""
    return ctx.continue_with(charge(tries=0), delay=4)


@work(name="orders.charge")
def charge(ctx: Context, tries: int) -> Any:
    """Charge the card, at the third try."""
    return ctx.continue_with(charge(tries=tries + 1) if tries < 2 else confirm(), delay=20 * (tries + 1))


@work(name="orders.confirm")
def confirm() -> str:
    """Confirm the order."""
    return "confirmed"


def populate() -> dict[str, str]:
    """Queue workflows and run them; return the group of each by name."""
    time_travel(-3600)
    groups = {"done": enqueue(month(month="2026-08", shops=40)).id}
    drain()
    time_travel(900)
    groups["chain"] = enqueue(reserve()).id
    for _ in range(8):
        drain()
        time_travel(30)
    BROKEN.update(range(300, 312))
    groups["held-up"] = enqueue(month(month="2026-09", shops=481)).id
    drain(raises=False)
    time_travel(900)
    BROKEN.clear()
    groups["running"] = enqueue(month(month="2026-10", shops=60)).id
    drain(48)
    for row in Work.objects.filter(group_id=groups["running"], status=Status.PENDING)[:3]:
        start(row, 40)
    time_travel(65)
    return groups


def page(group: str) -> str:
    """Return the address of a group's page."""
    return reverse("admin:django_ayework_group_change", args=[group])


def take(driver: Any, address: str, file: Path, width: int, height: int) -> None:
    """Take a picture of a page at a size; 0 is the height of the page."""
    size = {"width": width, "height": height or 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(address)
    if not height:
        whole = driver.execute_script("return document.documentElement.scrollHeight")
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "height": min(whole, 3000)})
    driver.save_screenshot(str(file))


def main(directory: str | None = None) -> None:
    """Make the picture, or all of them."""
    call_command("migrate", verbosity=0)
    get_user_model().objects.create_superuser("operator", password=None)
    groups = populate()
    with served() as address:
        if directory is None:
            with browser(900) as driver:
                sign_in(driver, address)
                take(driver, address + page(groups["held-up"]), HERE / "graph.png", 1280, 900)
            return
        pages = {name: page(group) for name, group in groups.items()}
        pages["unfolded"] = f"{pages['held-up']}?unfold={fetch_of(groups['held-up'])}"
        for theme in ("light", "dark"):
            with browser(900, dark=theme == "dark") as driver:
                sign_in(driver, address)
                for name, each in pages.items():
                    for width in (1400, 420):
                        file = Path(directory) / f"graph-{name}-{theme}-{width}.png"
                        take(driver, address + each, file, width, 0)


def fetch_of(group: str) -> str:
    """Return the id of a work of a group that is drawn together with others."""
    return Work.objects.filter(group_id=group, type="report.fetch").values_list("id", flat=True)[0]


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)
