"""The lists of the reference are those of the code, in both directions."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec

import pytest
from django.core.management import find_commands, get_commands, load_command_class

import django_ayework
from django_ayework import WorkState, conf, errors, models, signals, testing
from django_ayework.define.context import Context
from django_ayework.define.decorators import REFUSED, BatchOptions, WorkOptions
from django_ayework.define.handles import Handle, Kind
from django_ayework.define.options import ENQUEUE_OPTIONS, EnqueueOptions, WorkSettings
from django_ayework.flow import diagnosis
from django_ayework.rules import predeploy
from django_ayework.rules.explain import Code
from django_ayework.rules.states import Reason
from django_ayework.worker.worker import Worker
from tests.architecture.sources import PACKAGE, files
from tests.docs import FENCE
from tests.documentation.pages import PAGES, ROOT, names, page, python_blocks, section, table, tables

COMMANDS = sorted(name for name, app in get_commands().items() if app == "django_ayework")
#: What Django's own commands have.
EVERYWHERE = {"--help", "--version", "--verbosity", "--settings", "--pythonpath", "--traceback"}
#: Commands that take ids of works, whose table has them first.
BY_ID = {"ayework_cancel", "ayework_retry"}
#: What the engine asks of a context.
INSIDE = {"built", "given_output"}


EVERYWHERE |= {"--no-color", "--force-color", "--skip-checks"}


def test_every_command_has_a_section():
    assert find_commands(str(PACKAGE / "management")) == COMMANDS
    headings = re.findall(r"^## `(\w+)`$", page("reference/commands.md").read_text(), re.MULTILINE)
    assert sorted(headings) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_a_command(command):
    text = section("reference/commands.md", f"`{command}`")
    documented = {names(row[0])[0].split(" ")[0] for rows in tables(text)[:1] for row in rows}
    if f"`{command}`" in section("reference/commands.md", "JSON"):
        documented.add("--json")
    told_in_prose = set(re.findall(r"(?:`|With `)(--[\w-]+)`", text))
    assert documented | (told_in_prose & options_of(command)) == options_of(command)


def options_of(command: str) -> set[str]:
    """Return the options that a command has of its own; words without dashes by their name."""
    parser = load_command_class("django_ayework", command).create_parser("manage.py", command)
    actions = [action for action in parser._actions if not EVERYWHERE.intersection(action.option_strings)]
    found = {action.option_strings[0] for action in actions if action.option_strings}
    return found | {str(a.metavar) for a in actions if not a.option_strings and command in BY_ID}


def test_the_checks_of_the_doctor():
    checks = {*diagnosis.CHECKS, *diagnosis.CHECKS_OF_SERVER["sqlite"], "database", "system_checks"}
    [_, documented] = tables(section("reference/commands.md", "`ayework_doctor`"))
    assert {names(row[0])[0] for row in documented} == checks


def test_the_causes_and_subjects_of_misfits():
    text = section("reference/commands.md", "`ayework_predeploy`")
    assert {*predeploy.Cause, *predeploy.Subject} <= set(names(text))


def test_no_page_names_a_command_or_an_option_of_one_that_is_not_there():
    called = re.compile(r"manage\.py (ayework_\w+)([^`\n]*)")
    wrong = [
        f"{path.name}: {match[0]}"
        for path in PAGES
        for match in called.finditer(path.read_text())
        if match[1] not in COMMANDS
        or not set(re.findall(r"(?<!\S)--[\w-]+", match[2])) <= options_of(match[1]) | EVERYWHERE
    ]
    assert wrong == []


SETTINGS = {names(row[0])[0]: row[1:] for row in table("reference/settings.md", "Settings")}


def test_every_setting_is_listed_and_every_hook_has_a_section():
    assert sorted(SETTINGS) == sorted(conf.KEYS)
    headings = re.findall(r"^### `(\w+)\(", page("reference/signals-and-hooks.md").read_text(), re.MULTILINE)
    hooks = {key for key, name in conf.KEYS.items() if conf.READERS[name] is conf.read_hook}
    assert sorted(headings) == sorted(hooks)
    assert {key for key, row in SETTINGS.items() if row[1] == "hook"} == hooks - {"ID"}


@pytest.mark.parametrize("key", sorted(conf.KEYS))
def test_the_default_of_a_setting(key):
    default = getattr(conf.Settings(), conf.KEYS[key])
    documented = conf.resolved(key, ast.literal_eval(names(SETTINGS[key][0])[0]))
    assert documented == default or (key == "CODEC" and type(documented) is type(default))


def test_the_options_of_work():
    documented = {names(row[0])[0]: names(row[1]) for row in table("guides/describing-works.md", "Options")}
    known = {field.name: field.default for field in fields(WorkSettings)}
    assert set(documented) == {"name", *known} == set(WorkOptions.__annotations__)
    flags = {name for name, default in known.items() if default is False}
    assert {name for name, default in documented.items() if default == ["False"]} == flags


def test_the_options_of_batch_work():
    text = section("guides/batches.md", "Options")
    taken, refused = text.split("is refused when the decorator runs")
    documented = {name for name in names(taken.split("\n\n")[0]) if name != "@work"}
    assert documented == set(BatchOptions.__annotations__)
    assert set(REFUSED) <= set(names(text))
    assert set(REFUSED).isdisjoint(documented)
    assert {"name", *(field.name for field in fields(WorkSettings))} == (
        documented - {"size", "max_wait"} | set(REFUSED)
    )
    assert refused


def test_the_options_of_enqueue():
    documented = {names(row[0])[0] for row in table("guides/queueing.md", "Options")}
    assert documented == ENQUEUE_OPTIONS == set(EnqueueOptions.__annotations__)


def test_every_model_is_listed():
    text = section("reference/api.md", "Models").replace("\n", " ")
    [sentence] = re.findall(r"`django_ayework\.models` has (.+?), for +reading", text)
    assert set(names(sentence)) == set(models.__all__)
    listed = {names(row[0])[0] for row in table("explanation/architecture.md", "Tables")}
    assert listed == set(models.__all__) - {"DeadLetter", "Gate", "Overview"}


def error_rows() -> dict[str, tuple[bool, list[str]]]:
    """Return each error of the page: whether it is marked with a star, and what else it is."""
    rows = [row for rows in tables(page("reference/errors.md").read_text()) for row in rows]
    return {name: ("*" in row[0], names(row[1])) for row in rows for name in names(row[0])}


def declared_errors() -> dict[str, type[Exception]]:
    own = {name: error for name, error in vars(errors).items() if isinstance(error, type)}
    return {
        name: error
        for name, error in own.items()
        if error.__module__ == errors.__name__ and issubclass(error, Exception)
    }


ERRORS = sorted(set(declared_errors()) - {"AyeworkError"})


def test_every_error_is_listed():
    assert sorted(error_rows()) == ERRORS


@pytest.mark.parametrize("name", ERRORS)
def test_the_bases_of_an_error_and_whether_it_is_public(name):
    is_public, others = error_rows()[name]
    assert is_public == (name in django_ayework.__all__)
    bases = [base.__name__ for base in declared_errors()[name].__bases__]
    assert [base for base in bases if base != "AyeworkError"] == others


def test_every_signal_and_kind_of_event_is_listed():
    declared = {name for name, value in vars(signals).items() if isinstance(value, signals.RobustSignal)}
    rows = table("reference/signals-and-hooks.md", "Signals")
    assert {name for row in rows for name in names(row[0])} == declared
    events = table("reference/signals-and-hooks.md", "`ON_EVENT(event)`")
    [kinds] = [row for row in events if "kind" in row[0]]
    assert re.findall(r"[\w-]+", " ".join(names(kinds[1]))) == list(Kind)


def test_every_system_check_is_listed():
    source = "".join(path.read_text() for path in files())
    declared = set(re.findall(r"\"(ayework\.[EWI]\d{3})\"", source))
    rows = table("reference/checks.md", "System checks")
    assert {names(row[0])[0] for row in rows} == declared
    named = {id for path in PAGES for id in re.findall(r"ayework\.[EWI]\d{3}", path.read_text())}
    assert named <= declared


def test_every_public_name_is_in_the_reference():
    pages = (ROOT / "docs" / "reference").glob("*.md")
    text = [name for path in pages for name in names(FENCE.sub("", path.read_text()).replace("\n", " "))]
    words = {word for name in text for word in re.findall(r"\w+", name)}
    assert [name for name in django_ayework.__all__ if name not in words] == []


def test_examples_import_what_there_is():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}.{name}"
        for path in PAGES
        for line, source in python_blocks(path)
        for module, name in imported(source)
        if not hasattr(import_module(module), name) and find_spec(f"{module}.{name}") is None
    ]
    assert wrong == []


def imported(source: str) -> list[tuple[str, str]]:
    """Return what an example imports of the package."""
    tree = compile(source, "example", "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in found if (node.module or "").partition(".")[0] == "django_ayework"]
    return [(str(node.module), alias.name) for node in ours for alias in node.names]


def test_the_fields_of_a_state_and_the_methods_of_a_handle():
    methods, states = tables(section("reference/api.md", "Following"))[:2]
    assert sorted(name for row in states for name in names(row[0])) == sorted(
        field.name for field in fields(WorkState)
    )
    documented = {name.split("(")[0] for row in methods for name in names(row[0])}
    declared = {name for name, value in vars(Handle).items() if inspect.isfunction(value)}
    assert documented == {name for name in declared if not name.startswith("_")}


def test_what_a_context_has():
    text = section("reference/api.md", "In a handler").replace("\n", " ")
    [listed] = re.findall(r"Its methods: (.+?`)\.  ", text)
    declared = {name for name in dir(Context) if not name.startswith("_")}
    assert set(names(listed)) == declared - INSIDE


def test_how_a_worker_is_made():
    parameters = inspect.signature(Worker).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    expected = str(inspect.Signature(bare)).replace("'", '"')
    for path in ("reference/api.md", "operations/running-workers.md"):
        assert f"`Worker{expected}`" in page(path).read_text().replace("\n", " "), path


def test_the_testing_kit():
    text = page("guides/testing.md").read_text()
    assert [
        name for name in testing.__all__ if not re.search(rf"\b{name}\b", text) and name[0].islower()
    ] == []
    fixtures = {name for name in testing.__all__ if name[0].islower()} - {"adrain", "now"}
    assert set(names(section("guides/testing.md", "pytest"))) == fixtures


def test_the_factories():
    pytest.importorskip("factory")
    from django_ayework.testing import factories

    own = {
        name
        for name, value in vars(factories).items()
        if getattr(value, "__module__", "") == factories.__name__
    }
    text = set(names(section("guides/testing.md", "Factories"))) - {"factory-boy", factories.__name__}
    assert text == {name for name in own if name.endswith("Factory")} - {"EngineFactory"}
    assert {f"{name}Factory" for name in models.__all__ if name != "Overview"} == text


def test_the_codes_of_explain():
    rows = table("guides/acting-on-works.md", "Why is it not running?")
    documented = {name for row in rows for name in names(row[1])}
    assert documented == set(Code) - set(Reason)


EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


#: Packages whose modules are called otherwise.
MODULES = {
    "mysqlclient": "MySQLdb",
    "django-environ": "environ",
    "opentelemetry-api": "opentelemetry",
    "opentelemetry-instrumentation": "opentelemetry.instrumentation",
}


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"test", "bench", "dev", "docs"}))
def test_what_an_extra_installs_is_imported(extra):
    sources = "".join(path.read_text() for path in files(PACKAGE, ROOT / "example_project", ROOT / "tests"))
    packages = [str(re.match(r"[\w-]+", requirement)[0]) for requirement in EXTRAS[extra]]
    modules = [MODULES.get(package, package.replace("-", "_")) for package in packages]
    assert [name for name in modules if not re.search(rf"^ *(import|from) {name}\b", sources, re.M)] == []


def test_extras_that_are_named_are_there():
    named = {
        extra
        for path in [*PAGES, ROOT / "Makefile", ROOT / "pyproject.toml"]
        for listed in re.findall(r"(?:django-ayework|[\"' ]\.)\[([\w,]+)\]", path.read_text())
        for extra in listed.split(",")
    }
    assert named <= set(EXTRAS)


def test_every_guide_is_linked_from_the_first_page():
    text = page("index.md").read_text()
    guides = [
        f"{path.parent.name}/{path.name}"
        for folder in ("tutorial", "guides", "operations", "coming-from", "explanation")
        for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    ]
    assert [guide for guide in guides if f"({guide})" not in text] == []
