"""Sphinx builds the documentation site from the pages beside this file: ``make docs``."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

import django

ROOT = Path(__file__).resolve().parent.parent
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
    (r"py:.*", r"((collections|contextlib|datetime|django|typing)\..*|datetime)"),
    (r"py:.*", r"(django_ayework\..*\.)?[A-Z](_co)?"),
]

html_theme = "furo"
html_title = f"django-ayework {release}"
html_theme_options = {
    "source_repository": metadata["urls"]["Source"],
    "source_branch": "main",
    "source_directory": "docs/",
}
