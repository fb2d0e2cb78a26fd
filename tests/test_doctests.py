"""The examples in the docstrings of what needs no database."""

import doctest
import importlib
import pkgutil
from collections.abc import Iterator

import pytest

PURE = (
    "django_ayework.errors",
    "django_ayework.rules",
    "django_ayework.define",
    "django_ayework.doers",
    "django_ayework.hooks",
    "django_ayework.ports.kv",
)


def modules() -> Iterator[str]:
    for name in PURE:
        yield name
        if path := getattr(importlib.import_module(name), "__path__", None):
            yield from (info.name for info in pkgutil.walk_packages(path, f"{name}."))


@pytest.mark.parametrize("name", list(modules()))
def test_examples_in_docstrings(name):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.testmod(importlib.import_module(name), optionflags=flags).failed == 0
