"""System checks of the declared types, and of works in modules that nothing imports."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import modify_settings

from django_ayework import registry, work
from django_ayework.define.schedules import schedules
from tests.checks.hints import hint_of


def nothing() -> None: ...


def advise(*arguments): ...


def only_the_error(error): ...


@pytest.fixture(name="registry")
def empty_registry(monkeypatch):
    for name, empty in (("_declared", {}), ("clashes", {}), ("_targets", (0, set()))):
        monkeypatch.setattr(registry, name, empty)


@pytest.mark.usefixtures("registry")
def test_e005_two_works_of_one_name():
    @work(name="tests.twice")
    def first(): ...

    line = first.handler.__code__.co_firstlineno

    @work(name="tests.twice")
    def first(): ...

    work(name="tests.once")(nothing)
    [message] = run_checks(tags=["ayework"])
    path = f"{__name__}.test_e005_two_works_of_one_name.<locals>.first"
    assert message.id == "ayework.E005"
    assert message.msg == (
        f"Two works are named 'tests.twice': {path} (line {line}) and {path} (line {line + 5})."
    )
    assert hint_of(message) == 'Give one of them another name: @work(name="...").'


def module_of(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the source as a module, with the names that it needs."""
    module = ModuleType("decorated")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(textwrap.dedent(source), vars(module))


@pytest.mark.usefixtures("registry")
def test_w010_a_decorator_above_work_does_not_surround_the_handler(monkeypatch):
    module_of(
        """
        import functools
        from django.db import transaction
        from django_ayework import batch_work, schedule, work

        @transaction.atomic
        @work(name="tests.above")
        def above(): ...

        @functools.lru_cache
        @transaction.atomic
        @batch_work(name="tests.two")
        def two(items): ...

        @schedule("0 3 * * *", name="tests.fine")
        @work(name="tests.below")
        @transaction.atomic
        def below(): ...

        @work(name="tests.replaced")
        def replaced(): ...

        @functools.wraps(replaced.handler)
        def replaced(): ...
        """,
        monkeypatch,
    )
    try:
        above, two = run_checks(tags=["ayework"])
    finally:
        schedules.find("tests.fine").cancel()
    assert {above.id, two.id} == {"ayework.W010"}
    assert above.msg == (
        "above() of the work 'tests.above' has another decorator above @work, which surrounds the call that "
        "builds a request, and not the handler in a worker."
    )
    assert two.msg.startswith("two() of the work 'tests.two' ")
    assert hint_of(above) == "Write the other decorator below @work."


@pytest.mark.usefixtures("registry")
def test_e008_a_dotted_path_that_leads_nowhere():
    here = f"{__name__}.advise"
    work(name="tests.fine", on_failure=here, log_context=here, middleware=[here, nothing])(nothing)
    work(name="tests.lost", on_event="no.where", middleware=[here, f"{__name__}.nothnig"])(nothing)
    event, middleware = run_checks(tags=["ayework"])
    assert {event.id, middleware.id} == {"ayework.E008"}
    assert event.msg == "on_event= of the work 'tests.lost' cannot be imported: No module named 'no'."
    assert middleware.msg.startswith("middleware= of the work 'tests.lost' cannot be imported: Module ")
    assert 'does not define a "nothnig" attribute/class.' in middleware.msg


@pytest.mark.usefixtures("registry")
def test_e008_a_dotted_path_to_a_hook_that_cannot_take_its_arguments():
    here = f"{__name__}.only_the_error"
    work(name="tests.narrow", on_failure=here, middleware=[here])(nothing)
    [message] = run_checks(tags=["ayework"])
    expected = (
        f"on_failure= of the work 'tests.narrow' is called with (exception, info), but {here} takes (error)."
    )
    assert (message.id, message.msg) == ("ayework.E008", expected)
    assert hint_of(message) == "Change the parameters of the function."


@pytest.mark.usefixtures("registry")
def test_w003_a_type_that_chains_to_one_that_is_not_there():
    work(name="tests.store")(nothing)
    work(name="tests.fetch", then="tests.stor")(nothing)
    work(name="tests.crawl", then="tests.fetch")(nothing)
    [message] = run_checks(tags=["ayework"])
    assert (message.id, hint_of(message)) == ("ayework.W003", "Did you mean 'tests.store'?")
    expected = "'tests.fetch' has then='tests.stor', but no work has that name; its output is dropped."
    assert message.msg == expected


BROKEN = "# django_ayework\ndef broken(:"
DIRECT = """
    from django_ayework import work

    raise RuntimeError("this module must not be imported")

    @work
    def send(): ...

    @work(queue="mail")
    async def send_all(): ...

    def helper(): ...
"""
RENAMED = """
    from django_ayework import batch_work as many, work as job
    from django_ayework import schedule

    if True:
        @schedule("0 3 * * *")
        @job(name="depot.nightly")
        def nightly(): ...

    @many(size=3)
    def together(items): ...
"""
QUALIFIED = """
    import django_ayework as queue

    @queue.work
    def qualified(): ...
"""
OTHERS = """
    from django_ayework import enqueue
    from elsewhere import work

    @work
    def not_ours(): ...

    def make():
        from django_ayework import work

        @work(name="made")
        def made(): ...
"""


def write(folder: Path, **modules: str) -> None:
    for name, source in {"__init__": "", **modules}.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(textwrap.dedent(source))


@pytest.fixture
def depot(tmp_path: Path, monkeypatch: Any) -> Any:
    """An app whose ``works.py`` is imported, as at start-up."""
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path / "depot")
    with modify_settings(INSTALLED_APPS={"append": "depot"}):
        yield tmp_path / "depot"
    for name in [name for name in sys.modules if name.partition(".")[0] in ("depot", "project")]:
        del sys.modules[name]


def found() -> dict[str, tuple[str, str | None]]:
    messages = [message for message in run_checks(tags=["ayework"]) if message.id == "ayework.W007"]
    return {message.msg.partition(" ")[0]: (message.msg, hint_of(message)) for message in messages}


def test_w007_a_module_of_an_app_that_nothing_imports(depot: Path) -> None:
    write(depot, tasks=DIRECT)
    assert found() == {
        "depot.tasks": (
            "depot.tasks defines works, but nothing imports it, so workers do not know them: send, send_all.",
            "Move them to depot.works, which is imported at start-up, or import it there.",
        )
    }
    assert "depot.tasks" not in sys.modules


def test_w007_decorators_by_other_names_and_packages_below_an_app_but_tests(depot: Path) -> None:
    write(depot, renamed=RENAMED, qualified=QUALIFIED, test_works=DIRECT, conftest=DIRECT)
    for folder in ("jobs", "jobs/deep", "tests", "migrations"):
        write(depot / folder, late=DIRECT)
    assert {module: message.rpartition(": ")[2] for module, (message, _) in found().items()} == {
        "depot.renamed": "nightly, together.",
        "depot.qualified": "qualified.",
        "depot.jobs.late": "send, send_all.",
        "depot.jobs.deep.late": "send, send_all.",
    }


def test_w007_is_silent_on_what_is_imported_or_no_work_or_unreadable_or_foreign(
    depot: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    write(depot, tasks=DIRECT, others=OTHERS, broken=BROKEN)
    monkeypatch.setitem(sys.modules, "depot.tasks", object())
    write(tmp_path / "site-packages" / "foreign", tasks=DIRECT)  # which the project does not write
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    with modify_settings(INSTALLED_APPS={"append": "foreign"}):
        assert found() == {}
    del sys.modules["foreign"]


def test_w007_the_project_package_though_it_is_no_app(depot: Path, settings: Any) -> None:
    write(depot.parent / "project", works=DIRECT)
    __import__("project")
    settings.SETTINGS_MODULE = "project.settings.production"
    [(message, hint)] = found().values()
    assert message.startswith("project.works defines works, but nothing imports it")
    assert hint == (
        "Import project.works in the works.py of an app, or make its package an app: add it to "
        "INSTALLED_APPS and keep its works in works.py."
    )
