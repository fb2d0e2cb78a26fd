"""The search of the built site finds pages by the words of readers, in a real browser."""

from __future__ import annotations

import os
import tomllib
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from tests import browser
from tests.documentation.pages import ROOT, page
from tests.processes import eventually

#: What readers search for, and the page that is among the first three found.
SEARCHES = {
    "retry failed job by hand": "guides/acting-on-works",
    "worker killed running job": "operations/running-workers",
    "every night local time": "guides/scheduling",
    "daylight saving time": "guides/scheduling",
    "one customer blocks others": "guides/queueing",
    "one tenant takes all workers": "guides/queueing",
    "wait for several jobs": "guides/gates-and-groups",
    "pgbouncer transaction pooling": "operations/pgbouncer",
    "lease lapsed": "troubleshooting/log",
    "how do I test my works": "guides/testing",
    "disk space million jobs": "operations/capacity",
    "celery chord": "coming-from/celery",
    "limit api calls to 10 per second": "guides/doers",
    "upgrade without stopping": "operations/upgrades",
    "zero downtime upgrade": "operations/upgrades",
    "why does my job not run": "troubleshooting/works",
    "memory leak": "operations/running-workers",
    "cancel running job": "guides/acting-on-works",
    "worker memory grows": "operations/running-workers",
}
WORDS = tomllib.loads((ROOT / "docs" / "search_words.toml").read_text())


@pytest.mark.parametrize("name", WORDS)
def test_words_of_readers_are_those_of_a_page_and_stand_once(name: str) -> None:
    words = WORDS[name].split()
    assert page(f"{name}.md").exists()
    assert sorted(words) == sorted(set(words))


def found(driver: Any, site: Path, searched: str) -> list[str]:
    """Return the pages that a search lists, in their order."""
    driver.get((site / "search.html").as_uri() + "?q=" + urllib.parse.quote(searched))
    summary = "return document.querySelector('#search-results .search-summary')?.textContent ?? ''"
    eventually(lambda: driver.execute_script(summary).startswith(("Search finished", "Your search")))
    links = "return [...document.querySelectorAll('#search-results li > a')].map(a => a.getAttribute('href'))"
    hrefs = [href.partition(".html")[0] for href in driver.execute_script(links)]
    return list(dict.fromkeys(hrefs))


@pytest.mark.browser
@pytest.mark.timeout(600)
def test_each_search_lists_its_page_among_the_first_three(tmp_path: Path) -> None:
    if not (site := os.environ.get("AYEWORK_SITE")):
        pytest.skip("`make docs` builds the site and runs this test on it")
    driver = browser.start(tmp_path / "profile")
    try:
        first = {searched: found(driver, ROOT / site, searched)[:3] for searched in SEARCHES}
    finally:
        driver.quit()
    assert {searched: pages for searched, pages in first.items() if SEARCHES[searched] not in pages} == {}
