"""Works in modules that nothing imports: found in the source, without running it."""

from __future__ import annotations

import ast
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from django.apps import apps
from django.conf import settings

DECORATORS = frozenset({"work", "batch_work"})
#: Where packages are installed that the project does not write itself.
INSTALLED = frozenset({"site-packages", "dist-packages"})
#: Modules that define no works for workers.
PASSED_OVER = frozenset({"migrations", "conftest", "tests", "test", "testing"})


class UnloadedModule(NamedTuple):
    """A module that defines works and is not imported; ``app`` is None in a package that is no app."""

    name: str
    app: str | None
    works: tuple[str, ...]


def unloaded_modules() -> Iterator[UnloadedModule]:
    """Yield the modules of apps and of the project package that define works and are not imported."""
    seen: set[str] = set()
    for package, path, app in packages():
        for module, file in modules_below(package, path):
            if module in seen or module in sys.modules:
                continue
            seen.add(module)
            if works := works_in(file):
                yield UnloadedModule(module, app, tuple(works))


def packages() -> Iterator[tuple[str, str, str | None]]:
    """Yield the project's own packages by name, path and app: the innermost first, the project's last."""
    configs = sorted(apps.get_app_configs(), key=lambda config: -len(config.name))
    for config in configs:
        if config.name != "django_ayework" and INSTALLED.isdisjoint(Path(config.path).parts):
            yield config.name, config.path, config.name
    name = (getattr(settings, "SETTINGS_MODULE", None) or "").partition(".")[0]
    for path in getattr(sys.modules.get(name), "__path__", ()):
        yield name, path, None


def modules_below(package: str, path: str) -> Iterator[tuple[str, Path]]:
    """Yield the modules of a package and of those below it, but tests and migrations."""
    if is_passed_over(package):
        return
    for found in pkgutil.iter_modules([path]):
        module, file = f"{package}.{found.name}", Path(path, found.name)
        if found.ispkg:
            yield module, file / "__init__.py"
            yield from modules_below(module, str(file))
        elif not is_passed_over(module):
            yield module, file.with_suffix(".py")


def is_passed_over(module: str) -> bool:
    """Tell whether a module defines no works for workers, by its name.

    >>> is_passed_over("shop.tests.works"), is_passed_over("shop.test_works"), is_passed_over("shop.tasks")
    (True, True, False)
    """
    return any(
        part in PASSED_OVER or part.startswith("test_") or part.endswith(("_test", "_tests"))
        for part in module.split(".")
    )


def works_in(file: Path) -> list[str]:
    """Return the functions of a file that are decorated as works; none of a file that cannot be read."""
    try:
        source = file.read_bytes()
        if b"django_ayework" not in source:
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return decorated(ast.parse(source))
    except (OSError, SyntaxError, ValueError):
        return []


def decorated(tree: ast.Module) -> list[str]:
    """Return the functions of a module that ``@work`` or ``@batch_work`` decorates, under whatever name.

    >>> decorated(ast.parse("from django_ayework import work as job\\n@job(queue='mail')\\ndef send(): ..."))
    ['send']
    """
    names = imported_names(tree)
    return [
        function.name
        for function in module_level(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        and any(dotted(decorator) in names for decorator in function.decorator_list)
    ]


def imported_names(tree: ast.Module) -> set[str]:
    """Return under which names the decorators are imported."""
    names: set[str] = set()
    for node in module_level(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "django_ayework":
            names |= {each.asname or each.name for each in node.names if each.name in DECORATORS}
            names |= {name for each in node.names if each.name == "*" for name in DECORATORS}
        elif isinstance(node, ast.Import):
            here = {each.asname or each.name for each in node.names if each.name == "django_ayework"}
            names |= {f"{package}.{name}" for package in here for name in DECORATORS}
    return names


def module_level(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements that run when a module is imported: not those of functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            yield from module_level(child)


def dotted(decorator: ast.expr) -> str:
    """Return a decorator without its arguments, such as ``django_ayework.work``."""
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
