"""Sphinx builds the documentation site from the pages beside this file: ``make docs``."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

import django
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
django.setup()

metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
project = "django-ayework"
author = copyright = "the django-ayework maintainers"
version = release = metadata["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "monitoring"]
nitpicky = True

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"

#: Types of other projects and type variables have no entry here. The build asks no other machine for them.
nitpick_ignore_regex = [
    (r"py:.*", r"((collections|contextlib|datetime|django|inspect|typing)\..*|datetime)"),
    (r"py:.*", r"(django_ayework\..*\.)?[A-Z](_co)?"),
]

html_theme = "furo"
html_title = f"django-ayework {release}"
html_static_path = ["static"]
html_css_files = ["tables.css"]
html_theme_options = {
    "source_repository": metadata["urls"]["Source"],
    "source_branch": "main",
    "source_directory": "docs/",
}

html_search_scorer = str(HERE / "search_scorer.js")
#: Words that nearly all pages have, or that other packages have for them, and words of questions that
#: Sphinx keeps. The search ignores them, because it shows only pages that have all words of a search.
COMMON_WORDS = """
job jobs task tasks work works another can get just need one several someone use using want without
"""
#: Words of other packages, and the words of this one that stand for them.
OTHER_WORDS = {"enqueue": ("submit",), "dead": ("failed",)}
#: Words of readers that a page does not use, by page.
SEARCH_WORDS = tomllib.loads((HERE / "search_words.toml").read_text())


class ReadersEnglish(SearchEnglish):
    """The search of the site, for questions in the words of other packages."""

    stopwords = SearchEnglish.stopwords | set(COMMON_WORDS.split())

    def split(self, input: str) -> list[str]:
        words = super().split(input)
        return [*words, *(other for word in words for other in OTHER_WORDS.get(word.lower(), ()))]


def add_search_words(app: Sphinx, doctree: nodes.document) -> None:
    """Give a page the keywords by which the search finds it."""
    if words := SEARCH_WORDS.get(app.env.docname):
        doctree.append(nodes.meta(name="keywords", content=", ".join(words.split())))


def setup(app: Sphinx) -> None:
    app.add_search_language(ReadersEnglish)
    app.connect("doctree-read", add_search_words)
