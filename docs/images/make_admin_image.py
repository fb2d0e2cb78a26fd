"""Make the pictures of the admin, as a shop's operator may see it.

    python docs/images/make_admin_image.py [directory]

Needs Selenium, and Chromium with its driver. The works live in a temporary SQLite file, and the pages are
served on the loopback interface. With a directory, pictures of all pages go there instead: light and dark, on
a wide and on a narrow screen.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
from django.conf import settings

HERE = Path(__file__).resolve().parent
SCRATCH = Path(tempfile.mkdtemp(prefix="ayework-image-"))
sys.path.insert(0, str(HERE.parent.parent))

settings.configure(
    SECRET_KEY="only for a picture",  # noqa: S106
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    STATIC_URL="/static/",
    USE_TZ=True,
    TIME_ZONE="UTC",
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(SCRATCH / "db.sqlite3")}},
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "django.contrib.messages",
        "django.contrib.staticfiles",
        "django_ayework",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
)
django.setup()

from django.contrib import admin  # noqa: E402
from django.contrib.auth import get_user_model  # noqa: E402
from django.contrib.staticfiles.handlers import StaticFilesHandler  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.testcases import LiveServerThread  # noqa: E402
from django.urls import path, reverse  # noqa: E402
from selenium import webdriver  # noqa: E402

from django_ayework import Context, Retry, dependency, enqueue, enqueue_many, work  # noqa: E402
from django_ayework.define.requests import GATE_TYPE  # noqa: E402
from django_ayework.models import BulkAction, DeadLetter, Group, Schedule, Work, WorkerProcess  # noqa: E402
from django_ayework.rules.states import Status  # noqa: E402
from django_ayework.store.database import clock  # noqa: E402
from django_ayework.store.throughput import span_start  # noqa: E402
from django_ayework.testing import drain, time_travel  # noqa: E402
from django_ayework.testing.factories import (  # noqa: E402
    BulkActionFactory,
    FiringFactory,
    ScheduleFactory,
    StoreEntryFactory,
    ThroughputFactory,
    WorkControlFactory,
    WorkerProcessFactory,
)

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run --hide-scrollbars"
)

urlpatterns = [path("admin/", admin.site.urls)]


@work(name="shop.receipt", queue="mail", retry=Retry(attempts=2, base=1, jitter=0))
def receipt(order: int, to: str) -> str:
    """Fail for one customer."""
    if "nowhere" in to:
        raise ConnectionRefusedError(f"550 5.1.1 <{to}>: Recipient address rejected: User unknown")
    return f"<{order}@shop.example>"


@work(name="shop.reserve")
def reserve(sku: str, pieces: int) -> dict[str, Any]:
    """Take pieces from the shelf."""
    return {"sku": sku, "left": 40 - pieces}


@work(name="shop.thumbnails", queue="media")
def thumbnails(photo: str) -> None:
    """Shrink a photo."""


@work(name="shop.export", queue="reports")
def export(month: str) -> None:
    """Write a month's sales."""


@work(name="shop.reminder", queue="mail")
def reminder(order: int) -> None:
    """Remind somebody to pay."""


@work(name="shop.checkout")
def checkout(ctx: Context, order: int) -> Any:
    """Reserve everything, then send the receipt."""
    lines = [reserve(sku=sku, pieces=2) for sku in ("tea", "pot", "cup")]
    send = receipt(order=order, to="ada@example.com")
    return ctx.queue([*lines, dependency(on=lines, queue=[send])])


def populate() -> None:
    """Queue works over half an hour and run most of them; one dies, two are under way, some wait."""
    time_travel(-1800)
    for number in range(1, 5):
        enqueue(thumbnails(photo=f"photos/{number:04}.jpg"))
        run_all()
    enqueue(checkout(order=1842))
    run_all()
    enqueue(receipt(order=1841, to="bob@nowhere.example"))
    for number in range(14):
        enqueue(receipt(order=1900 + number, to=f"guest{number}@nowhere.example"))
    enqueue(reserve(sku="kettle", pieces=1), priority=5)
    run_all()
    enqueue(reminder(order=1838), delay=timedelta(hours=20))
    packing = [reserve(sku=sku, pieces=1) for sku in ("tea", "cup")]
    scale = enqueue(reserve(sku="scale", pieces=1))
    enqueue_many(packing, together=True)
    enqueue(dependency(on=packing, queue=[receipt(order=1843, to="eve@example.com")]))
    time_travel(60)
    add_rest()
    enqueue(export(month="2026-05"))
    enqueue(thumbnails(photo="photos/0009.jpg"))
    for name, done in (("shop.export", 61), ("shop.thumbnails", 3)):
        start(Work.objects.filter(type=name, status=Status.PENDING).latest("id"), done)
    enqueue(receipt(order=1844, to="mia@example.com"), priority=10)
    Work.objects.filter(id=scale.id).update(status=Status.CANCELLED, ended_at=clock.now())
    for number in range(3):
        WorkerProcessFactory(host=f"worker-{number + 1}", name="shop", running=number % 2)


def add_rest() -> None:
    """Add what operators make, more dead works, and the figures of a day."""
    BulkActionFactory(
        filter='{"status": "dead", "type": "shop.receipt"}',
        parameters="{}",
        per_minute=100,
        expected=1200,
        done=430,
        created_by="operator",
    )
    last_night = clock.now().replace(hour=3, minute=0, second=0, microsecond=0)
    nightly = ScheduleFactory(
        name="nightly export",
        kind="cron",
        cron="0 3 * * *",
        every=None,
        function="shop.export",
        next_at=last_night + timedelta(days=1),
        last_fired_at=last_night,
    )
    FiringFactory(schedule=nightly, occurrence=last_night)
    WorkControlFactory(name="shop.thumbnails", paused=False, max_running=4)
    StoreEntryFactory(key="shop.rates", value='{"EUR": 1.08}')
    now = clock.now()
    for seconds, spans in ((60, 60), (900, 96)):
        for span in range(spans):
            start = span_start(now - timedelta(seconds=seconds * span), seconds)
            for place, (type, queue) in enumerate((("shop.receipt", "mail"), ("shop.thumbnails", "media"))):
                ThroughputFactory(
                    seconds=seconds,
                    start=start,
                    type=type,
                    queue=queue,
                    succeeded=(span * (7 + place)) % 23 * seconds // 60,
                    failed=3 if span % 17 == 5 else 0,
                    duration=2.0,
                )


def run_all() -> None:
    """Run everything, retries too; time passes."""
    for seconds in (2, 90):
        time_travel(seconds)
        drain(raises=False)


def start(row: Work, done: int) -> None:
    """Show a work as running."""
    now = clock.now()
    Work.objects.filter(id=row.id).update(
        status=Status.RUNNING,
        attempt=1,
        started_at=now,
        worker="worker-1",
        leased_until=now + timedelta(seconds=30),
        progress=f'{{"done": {done}, "total": 100, "note": ""}}',
    )


@contextmanager
def served() -> Iterator[str]:
    """Serve the admin; yield its address."""
    server = LiveServerThread("127.0.0.1", StaticFilesHandler)
    server.daemon = True
    server.start()
    server.is_ready.wait()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.terminate()


@contextmanager
def browser(height: int, dark: bool = False, width: int = 1280) -> Iterator[webdriver.Chrome]:
    """Start a browser of this size."""
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS.split(), f"--user-data-dir={tempfile.mkdtemp(dir=SCRATCH)}"):
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": theme})
        yield driver
    finally:
        driver.quit()


def sign_in(driver: webdriver.Chrome, address: str) -> None:
    """Sign in as a superuser, and put the admin's menu away."""
    client = Client()
    client.force_login(get_user_model().objects.get(username="operator"))
    driver.get(address + reverse("admin:login"))
    driver.add_cookie({"name": "sessionid", "value": client.cookies["sessionid"].value, "path": "/"})
    driver.execute_script("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")


def pages() -> dict[str, str]:
    """Return the address of every kind of page."""

    def page(name: str, *args: str, **query: str) -> str:
        return reverse(f"admin:django_ayework_{name}", args=args, query=query or None)

    dead = DeadLetter.objects.filter(status=Status.DEAD).earliest("id").pk
    return {
        "overview": page("overview_changelist"),
        "admin": page("work_changelist"),
        "dead": page("work_change", dead),
        "edit": page("work_edit", dead),
        "gate": page("work_change", Work.objects.filter(type=GATE_TYPE).earliest("id").pk),
        "waiting-gate": page("work_change", Work.objects.filter(type=GATE_TYPE).latest("id").pk),
        "dead-letters": page("deadletter_changelist"),
        "dead-letters-list": page("deadletter_list"),
        "bulk-new": page("bulkaction_new", action="retry", status="dead", type="shop.receipt"),
        "bulk": page("bulkaction_change", BulkAction.objects.get().pk),
        "bulk-list": page("bulkaction_changelist"),
        "gates": page("gate_changelist"),
        "groups": page("group_changelist"),
        "group": page("group_change", Group.objects.earliest("id").pk),
        "controls": page("workcontrol_changelist"),
        "schedules": page("schedule_changelist"),
        "schedule": page("schedule_change", str(Schedule.objects.get().pk)),
        "workers": page("workerprocess_changelist"),
        "worker": page("workerprocess_change", WorkerProcess.objects.earliest("id").pk),
        "entries": page("storeentry_changelist"),
    }


def take(driver: webdriver.Chrome, address: str, file: Path) -> None:
    """Take a picture of a page."""
    driver.get(address)
    driver.save_screenshot(str(file))


#: The pictures of the documentation, with the height of each.
KEPT = {"overview": 900, "admin": 860, "dead-letters": 620, "edit": 560}


def main(directory: str | None = None) -> None:
    """Make the pictures of the documentation, or of all pages."""
    call_command("migrate", verbosity=0)
    get_user_model().objects.create_superuser("operator", password=None)
    populate()
    with served() as address:
        if directory is None:
            for name, height in KEPT.items():
                with browser(height) as driver:
                    sign_in(driver, address)
                    take(driver, address + pages()[name], HERE / f"{name}.png")
            return
        for theme in ("light", "dark"):
            for width in (1280, 420):
                with browser(1100, dark=theme == "dark", width=width) as driver:
                    sign_in(driver, address)
                    for name, page in pages().items():
                        take(driver, address + page, Path(directory) / f"{name}-{theme}-{width}.png")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)
