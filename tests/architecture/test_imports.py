"""What importing the package does, and does not do."""

import subprocess
import sys
import textwrap

import pytest

from tests.architecture.sources import ROOT


def fresh(source: str) -> str:
    """What a new interpreter prints."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(source)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def modules() -> str:
    """Source that imports all of the layers that know nothing of Django."""
    return """
        import importlib, pkgutil, sys
        import django_ayework, django_ayework.define, django_ayework.doers, django_ayework.hooks
        import django_ayework.rules
        for layer in (django_ayework.rules, django_ayework.doers, django_ayework.define):
            for found in pkgutil.walk_packages(layer.__path__, layer.__name__ + "."):
                importlib.import_module(found.name)
    """


def test_rules_doers_and_definitions_do_without_django(modules):
    printed = fresh(
        modules
        + """
        print(len([name for name in sys.modules if name.startswith("django_ayework.")]) > 20)
        print([name for name in sys.modules if name.split(".")[0] == "django"])
        """
    )

    assert printed.split() == ["True", "[]"]


def test_importing_the_package_has_no_side_effects():
    printed = fresh(
        """
        import signal, sys, threading
        before = signal.getsignal(signal.SIGTERM)
        import django_ayework
        print([name for name in sys.modules if name.split(".")[0] in {"django", "asyncio"}])
        print(threading.active_count(), signal.getsignal(signal.SIGTERM) is before)
        print(django_ayework.registry.names())
        """
    )

    assert printed.splitlines() == ["[]", "1 True", "[]"]


def test_importing_the_package_before_django_is_set_up_is_fine():
    """INSTALLED_APPS names it, so Django imports it before there are models."""
    printed = fresh(
        """
        import os
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
        from django_ayework import Context, work
        import django
        django.setup()
        from django_ayework import Worker, enqueue
        print(Worker.__module__, enqueue.__module__)
        """
    )

    assert printed == "django_ayework.worker.worker django_ayework.api"


def test_a_work_declared_without_django_needs_a_name_or_the_app():
    printed = fresh(
        """
        from django_ayework import work
        def restock(): ...
        print(work(name="restock")(restock)().type)
        try:
            work(restock)
        except TypeError as refused:
            print(refused)
        """
    )

    assert printed.splitlines() == [
        "restock",
        '__main__.restock is in no installed app, so it has no name; give one: @work(name="..."). '
        "(django_ayework itself is not loaded: is it in INSTALLED_APPS?)",
    ]
