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
from tests.documentation import pages
from tests.documentation.pages import (
    PAGES,
    ROOT,
    headings,
    listed,
    names,
    page,
    plain,
    section,
    table,
    tables,
)

API, COMMANDS_PAGE, SIGNALS = "reference/api.md", "reference/commands.md", "reference/signals-and-hooks.md"
COMMANDS = sorted(name for name, app in get_commands().items() if app == "django_ayework")
#: What Django's own commands have.
EVERYWHERE = {"--help", "--version", "--verbosity", "--settings", "--pythonpath", "--traceback"}
EVERYWHERE |= {"--no-color", "--force-color", "--skip-checks"}
#: Commands that take ids of works, whose table has them first.
BY_ID = {"ayework_cancel", "ayework_retry"}
#: What the engine asks of a context.
INSIDE = {"built", "given_output"}


def options_of(command: str) -> set[str]:
    """Return the options that a command has of its own; words without dashes by their name."""
    parser = load_command_class("django_ayework", command).create_parser("manage.py", command)
    actions = [action for action in parser._actions if not EVERYWHERE.intersection(action.option_strings)]
    found = {action.option_strings[0] for action in actions if action.option_strings}
    return found | {str(a.metavar) for a in actions if not a.option_strings and command in BY_ID}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_a_command(command):
    text = section(COMMANDS_PAGE, f"`{command}`")
    documented = {names(row[0])[0].split(" ")[0] for rows in tables(text)[:1] for row in rows}
    if f"`{command}`" in section(COMMANDS_PAGE, "JSON"):
        documented.add("--json")
    told_in_prose = set(re.findall(r"(?:`|With `)(--[\w-]+)`", text))
    assert documented | (told_in_prose & options_of(command)) == options_of(command)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_and_their_options_that_a_page_names_exist(path):
    assert set(re.findall(r"manage\.py (ayework_\w+)", path.read_text())) <= set(COMMANDS)
    for code in pages.code_of(path):
        for command, arguments in re.findall(r"(?<![\w.])(ayework_[a-z]+)((?: [^\s`|;&]+)*)", code):
            if command in COMMANDS:
                options = set(re.findall(r"(?<!\S)--[\w-]+", arguments))
                assert options <= options_of(command) | EVERYWHERE, (command, options)


# --- lists -----------------------------------------------------------------------------------------------

SETTINGS = {names(row[0])[0]: row[1:] for row in table("reference/settings.md", "Settings")}
OPTIONS = {names(row[0])[0]: names(row[1]) for row in table("guides/describing-works.md", "Options")}
OF_WORK = {field.name: field.default for field in fields(WorkSettings)}
HOOKS = {key for key, name in conf.KEYS.items() if conf.READERS[name] is conf.read_hook}
OF_ENQUEUE = (ENQUEUE_OPTIONS, EnqueueOptions.__annotations__)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
HANDLES, STATES = tables(section(API, "Following"))[:2]
OF_BATCHES = section("guides/batches.md", "Options")
TAKEN = set(names(OF_BATCHES.split("is refused when the decorator runs")[0].split("\n\n")[0])) - {"@work"}


def in_code(path: str, heading: str, part: str = "(.+)") -> set[str]:
    """Return what is set as code in a section, or in the part of it that a pattern finds."""
    [found] = re.findall(part, section(path, heading).replace("\n", " "))
    return set(names(found))


def errors_listed() -> dict[str, tuple[bool, list[str]]]:
    """Return each error of the page: whether it is marked with a star, and what else it is."""
    rows = [row for rows in tables(page("reference/errors.md").read_text()) for row in rows]
    return {name: ("*" in row[0], names(row[1])) for row in rows for name in names(row[0])}


def declared_in(module):
    """Return the classes that a module declares."""
    own = {name: each for name, each in vars(module).items() if isinstance(each, type)}
    return {name: each for name, each in own.items() if each.__module__ == module.__name__}


ERRORS = {name: error for name, error in declared_in(errors).items() if issubclass(error, Exception)}
del ERRORS["AyeworkError"]


def public(things) -> set[str]:
    return {name for name in things if not name.startswith("_")}


def fixtures() -> set[str]:
    return {name for name in testing.__all__ if name[0].islower()} - {"adrain", "now"}


def factories() -> set[str]:
    pytest.importorskip("factory")
    from django_ayework.testing import factories

    return {name for name in declared_in(factories) if name.endswith("Factory")} - {"EngineFactory"}


def system_checks() -> set[str]:
    return set(re.findall(r"\"(ayework\.[EWI]\d{3})\"", "".join(path.read_text() for path in files())))


def checks_of_the_doctor() -> set[str]:
    return {*diagnosis.CHECKS, *diagnosis.CHECKS_OF_SERVER["sqlite"], "database", "system_checks"}


WHY = "Why is it not running?"
#: What is listed, and what there is.
LISTS = {
    "commands": lambda: (
        [name for heading in headings(COMMANDS_PAGE) for name in names(heading)], COMMANDS,
        find_commands(str(PACKAGE / "management")),
    ),
    "checks of the doctor": lambda: (listed(COMMANDS_PAGE, "`ayework_doctor`", 1), checks_of_the_doctor()),
    "settings": lambda: (SETTINGS, conf.KEYS),
    "hooks": lambda: ([key for key, row in SETTINGS.items() if row[1] == "hook"], HOOKS - {"ID"}),
    "sections of hooks": lambda: (re.findall(r"^### `(\w+)\(", page(SIGNALS).read_text(), re.M), HOOKS),
    "options of @work": lambda: (OPTIONS, {"name", *OF_WORK}, WorkOptions.__annotations__),
    "flags of @work": lambda: (
        [name for name, default in OPTIONS.items() if default == ["False"]],
        [name for name, default in OF_WORK.items() if default is False],
    ),
    "options of @batch_work": lambda: (TAKEN, BatchOptions.__annotations__),
    "options of @work in batches": lambda: ([*TAKEN, *REFUSED], {"name", "size", "max_wait", *OF_WORK}),
    "options of enqueue": lambda: (listed("guides/queueing.md", "Options"), *OF_ENQUEUE),
    "models": lambda: (in_code(API, "Models", r"models` has (.+?), for +reading"), models.__all__),
    "tables": lambda: (
        [*listed("explanation/architecture.md", "Tables"), "DeadLetter", "Gate", "Overview"], models.__all__
    ),
    "errors": lambda: (errors_listed(), ERRORS),
    "signals": lambda: (
        listed(SIGNALS, "Signals"),
        [name for name, value in vars(signals).items() if isinstance(value, signals.RobustSignal)],
    ),
    "system checks": lambda: (listed("reference/checks.md", "System checks"), system_checks()),
    "fields of a state": lambda: (
        [name for row in STATES for name in names(row[0])], WorkState.__annotations__
    ),
    "methods of a handle": lambda: (
        {name.split("(")[0] for row in HANDLES for name in names(row[0])},
        public([name for name, value in vars(Handle).items() if inspect.isfunction(value)]),
    ),
    "methods of a context": lambda: (
        [*INSIDE, *in_code(API, "In a handler", r"Its methods: (.+?`)\.  ")],
        public(dir(Context)),
    ),
    "codes of explain": lambda: (
        {code for row in table("guides/acting-on-works.md", WHY) for code in names(row[1])},
        set(Code) - set(Reason),
    ),
    "fixtures": lambda: (in_code("guides/testing.md", "pytest"), fixtures()),
    "factories": lambda: (
        in_code("guides/testing.md", "Factories") - {"factory-boy", "django_ayework.testing.factories"},
        factories(), {f"{name}Factory" for name in models.__all__ if name != "Overview"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_that_of_the_code(name):
    documented, *declared = map(sorted, LISTS[name]())
    assert [documented] * len(declared) == declared


def test_all_of_the_code_are_named():
    misfits = section(COMMANDS_PAGE, "`ayework_predeploy`")
    assert {*predeploy.Cause, *predeploy.Subject} <= set(names(misfits))
    assert set(REFUSED) <= set(names(OF_BATCHES))
    kit = page("guides/testing.md").read_text()
    lower = [name for name in testing.__all__ if name[0].islower()]
    assert [name for name in lower if not re.search(rf"\b{name}\b", kit)] == []
    public = " ".join(name for path in page("reference").glob("*.md") for name in names(plain(path)))
    assert set(django_ayework.__all__) <= set(re.findall(r"\w+", public))
    text = "".join(path.read_text() for path in PAGES)
    assert set(re.findall(r"ayework\.[EWI]\d{3}", text)) <= system_checks()


@pytest.mark.parametrize("key", sorted(conf.KEYS))
def test_the_default_of_a_setting(key):
    default = getattr(conf.Settings(), conf.KEYS[key])
    documented = conf.resolved(key, ast.literal_eval(names(SETTINGS[key][0])[0]))
    assert documented == default or (key == "CODEC" and type(documented) is type(default))


@pytest.mark.parametrize("name", ERRORS)
def test_the_bases_of_an_error_and_whether_it_is_public(name):
    bases = [base.__name__ for base in ERRORS[name].__bases__ if base.__name__ != "AyeworkError"]
    assert errors_listed()[name] == (name in django_ayework.__all__, bases)


def test_the_kinds_of_events_are_listed_in_order():
    [kinds] = [row for row in table(SIGNALS, "`ON_EVENT(event)`") if "kind" in row[0]]
    assert re.findall(r"[\w-]+", " ".join(names(kinds[1]))) == list(Kind)


def test_how_a_worker_is_made():
    parameters = inspect.signature(Worker).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    expected = str(inspect.Signature(bare)).replace("'", '"')
    for path in (API, "operations/running-workers.md"):
        assert f"`Worker{expected}`" in page(path).read_text().replace("\n", " "), path


def test_examples_import_what_there_is():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}.{name}"
        for path in PAGES
        for line, source in pages.python_blocks(path)
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


#: Packages whose modules are called otherwise.
MODULES = {"mysqlclient": "MySQLdb", "django-environ": "environ", "opentelemetry-api": "opentelemetry"}
MODULES |= {"opentelemetry-instrumentation": "opentelemetry.instrumentation"}


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"test", "bench", "dev", "docs"}))
def test_what_an_extra_installs_is_imported(extra):
    sources = "".join(path.read_text() for path in files(PACKAGE, ROOT / "example_project", ROOT / "tests"))
    packages = [str(re.match(r"[\w-]+", requirement)[0]) for requirement in EXTRAS[extra]]
    modules = [MODULES.get(package, package.replace("-", "_")) for package in packages]
    assert [name for name in modules if not re.search(rf"^ *(import|from) {name}\b", sources, re.M)] == []


def test_extras_that_are_named_are_there():
    texts = [path.read_text() for path in [*PAGES, ROOT / "Makefile", ROOT / "pyproject.toml"]]
    found = [each for text in texts for each in re.findall(r"(?:django-ayework|[\"' ]\.)\[([\w,]+)\]", text)]
    assert {extra for each in found for extra in each.split(",")} <= set(EXTRAS)


def test_every_guide_is_linked_from_the_first_page():
    text = page("index.md").read_text()
    folders = ("tutorial", "guides", "operations", "coming-from", "explanation")
    guides = [f"{folder}/{path.name}" for folder in folders for path in page(folder).glob("*.md")]
    assert [guide for guide in guides if f"({guide})" not in text] == []
