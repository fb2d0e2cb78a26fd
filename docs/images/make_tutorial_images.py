"""Make the pictures of the tutorial, by doing the tutorial.

    python docs/images/make_tutorial_images.py

Needs what ``make_admin_image.py`` needs. The pages say in comments which pictures are taken, and where.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from make_admin_image import HERE, SCRATCH, browser

from tests.documentation.reader import Browser
from tests.documentation.tutorial import PAGES, tutorial


def take(site: Browser, name: str, size: str) -> None:
    """Take a picture of the page that the reader is at, as the reader's user sees it."""
    width, height = map(int, size.split("x"))
    with browser(height, width=width) as driver:
        driver.get(f"{site.url}/admin/login/")
        for cookie in site.cookies:
            driver.add_cookie({"name": cookie.name, "value": cookie.value or "", "path": cookie.path})
        driver.execute_script("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")
        driver.get(site.url + site.at)
        driver.save_screenshot(str(HERE / name))
        print(name, site.at)


def main() -> None:
    """Do the tutorial with a camera."""
    with (
        tempfile.TemporaryDirectory(prefix="ayework-tutorial-") as folder,
        tutorial(Path(folder), camera=take) as reader,
    ):
        for page in PAGES:
            reader.do(page)


if __name__ == "__main__":
    try:
        main()
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)
