"""The tasks that workers must know, found in the source of the installed apps.

The modules to import come from the file system and from the settings, never from a stored work.
"""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from importlib import import_module

from django.apps import apps

from django_ayework.contrib.tasks.backend import AyeworkBackend, register
from django_ayework.contrib.tasks.framework import Task, task_backends
from django_ayework.define.types import registry
from django_ayework.documentation import logged
from django_ayework.rules.formatting import error_text

logger = logging.getLogger("django_ayework")

FRAMEWORKS = ("django.tasks", "django_tasks")
MENTIONED = re.compile(rb"django_tasks|django\.tasks|from\s+django\s+import[^#\n]*\btasks\b")


def discover() -> None:
    """Import the modules that declare tasks, register the tasks, log and note those that fail."""
    backends = [each for each in task_backends.all() if isinstance(each, AyeworkBackend)]
    if not backends:
        return
    registry.queues.update(*(backend.queues for backend in backends))
    listed = (module for backend in backends for module in backend.options.get("MODULES", ()))
    for module in dict.fromkeys([*listed, *found_modules()]):
        try:
            register_all(module)
        except Exception as error:
            registry.failed[module] = error_text(error)
            logger.exception(
                "The module %s, which declares tasks, could not be imported. %s",
                module,
                logged("task-module-not-imported"),
            )


def register_all(module: str) -> None:
    """Import a module and register its tasks, those of other backends too: ``using()`` may choose ours."""
    for value in list(vars(import_module(module)).values()):
        if isinstance(value, Task):
            register(value)


def found_modules() -> Iterator[str]:
    """Yield the modules of apps that take ``task`` from a framework, except tests and migrations."""
    from django_ayework.flow.startup_checks import module_level, modules_below, parsed

    for config in apps.get_app_configs():
        if config.name.partition(".")[0] not in ("django", "django_ayework", "django_tasks"):
            for module, file in modules_below(config.name, config.path):
                if any(map(takes_tasks, module_level(parsed(file, MENTIONED)))):
                    yield module


def takes_tasks(node: ast.AST) -> bool:
    """Tell whether a statement imports a decorator of tasks.

    >>> [takes_tasks(ast.parse(line).body[0]) for line in ("from django.tasks import task", "import os")]
    [True, False]
    """
    if isinstance(node, ast.ImportFrom):
        names = {each.name for each in node.names}
        return (node.module in FRAMEWORKS and bool(names & {"task", "*"})) or (
            node.module == "django" and "tasks" in names
        )
    return isinstance(node, ast.Import) and any(each.name in FRAMEWORKS for each in node.names)
