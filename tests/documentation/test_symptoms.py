"""The pages on operations name what there is, and each symptom leads to what to look at."""

from __future__ import annotations

import re

import pytest
import yaml
from django.apps import apps

from django_ayework import conf
from django_ayework.flow import diagnosis
from django_ayework.rules.explain import Code
from django_ayework.rules.problems import ProblemCode
from django_ayework.rules.states import Reason
from tests.docs import FENCE, anchors
from tests.documentation.operations import PAGES, code_of, series
from tests.documentation.pages import ROOT, names, page, section, table, tables
from tests.documentation.test_reference import COMMANDS, EVERYWHERE, options_of

#: Settings of Django, of servers and of tools that the pages name.
OTHERS = {
    *("CONN_HEALTH_CHECKS", "CONN_MAX_AGE", "DISABLE_SERVER_SIDE_CURSORS", "INSTALLED_APPS"),
    *("SECRET_KEY", "SECRET_KEY_FALLBACKS", "DATABASE_URL", "VERIFY_IDENTITY"),
    *("POSTGRES_DB", "POSTGRES_PASSWORD", "POSTGRES_USER"),
    *("OTEL_PROPAGATORS", "PROMETHEUS_MULTIPROC_DIR"),
}


# --- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_settings_that_a_page_names_exist(path):
    found = {
        word for code in code_of(path) for word in re.findall(r"(?<![\w$])[A-Z]+(?:_[A-Z]+)+(?!\w)", code)
    }
    assert found - set(conf.KEYS) - OTHERS == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_commands_series_and_indexes_that_a_page_names_exist(path):
    indexes = {
        index.name
        for model in apps.get_app_config("django_ayework").get_models()
        for index in model._meta.indexes
    }
    known = {*COMMANDS, *series(), *indexes}
    endings = ("_bucket", "_count", "_sum")
    found = {word for code in code_of(path) for word in re.findall(r"(?<![\w/.])ayework_[a-z_]+", code)}
    assert {word for word in found if word not in known and not word.endswith(endings)} == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_options_that_follow_a_command_in_a_page_exist(path):
    for code in code_of(path):
        for command, arguments in re.findall(r"(?<![\w.])(ayework_[a-z]+)((?: [^\s`|;&]+)*)", code):
            if command in COMMANDS:
                options = set(re.findall(r"(?<!\S)--[\w-]+", arguments))
                assert options <= options_of(command) | EVERYWHERE, (command, options)


def test_options_that_stand_alone_exist():
    """Those of other programs are named with their program."""
    known = EVERYWHERE.union(*map(options_of, COMMANDS)) | {"--init"}
    for path in PAGES:
        text = FENCE.sub("", path.read_text())
        found = {option for name in names(text) for option in re.findall(r"^--[\w-]+", name)}
        assert found <= known, path


# --- symptoms --------------------------------------------------------------------------------------------

SYMPTOMS = "operations/symptoms.md"


def test_the_list_of_symptoms_leads_to_each_section_in_order():
    path = page(SYMPTOMS)
    rows = tables(path.read_text())[0]
    linked = [re.findall(r"\[(.+)\]\(#([\w-]+)\)", row[0]) for row in rows]
    headings = re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE)
    assert [text.lower() for [(text, _)] in linked] == [heading.lower() for heading in headings]
    assert {anchor for [(_, anchor)] in linked} <= anchors(path)


def test_each_symptom_says_what_to_do():
    """In a table or in sentences, and with a link or a command."""
    for heading in re.findall(r"^## (.+)$", page(SYMPTOMS).read_text(), re.MULTILINE):
        text = section(SYMPTOMS, heading)
        assert re.search(r"\]\(|`ayework_", text), heading
        assert tables(text) or len(text.split()) > 20, heading


def test_checks_of_the_doctor_that_are_named_exist():
    known = {*diagnosis.CHECKS, "database", "system_checks"}
    known |= {check for found in diagnosis.CHECKS_OF_SERVER.values() for check in found}
    listed = {names(row[0])[0] for row in tables(section("reference/commands.md", "`ayework_doctor`"))[1]}
    assert known == listed
    text = page(SYMPTOMS).read_text()
    named = [
        name
        for found in re.findall(r"doctor`?: ((?:`\w+`(?:, )?)+)", text)
        for name in re.findall(r"`(\w+)`", found)
    ]
    assert len(named) > 15
    assert set(named) <= known
    for path in PAGES:
        told = re.findall(
            r"`ayework_doctor`[^.|]{0,60} under `(\w+)`|(?:doctor`?[^.]{0,60}) in `(\w+)`",
            " ".join(path.read_text().split()),
        )
        assert {name for pair in told for name in pair if name} <= known, path


def test_codes_and_reasons_that_are_named_exist():
    known = {*ProblemCode, *Code, *Reason}
    words = {
        word
        for name in names(FENCE.sub("", page(SYMPTOMS).read_text()))
        for word in re.findall(r"^[a-z]+(?:_[a-z]+)+$", name)
    }
    ours = {*diagnosis.CHECKS, "database", "system_checks"}
    ours |= {check for found in diagnosis.CHECKS_OF_SERVER.values() for check in found}
    options = {"sync_to_async", "transaction_mode", "max_running"}
    tables_of_ours = {model._meta.db_table for model in apps.get_app_config("django_ayework").get_models()}
    other = {word for word in words if not word.startswith("ayework_")} - ours - options - tables_of_ours
    assert other
    assert other - known == set()


def test_every_problem_of_the_overview_and_every_reason_is_in_a_symptom():
    text = set(names(page(SYMPTOMS).read_text()))
    missing = {*ProblemCode, *Reason} - text
    assert missing <= {"all_well", "deaths_rise", "schedule_fails"}


def test_alerts_that_are_named_exist():
    rules = yaml.safe_load((ROOT / "docs" / "monitoring" / "ayework-alerts.yml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    named = {word for path in PAGES for word in re.findall(r"`(Ayework[A-Z]\w+)`", path.read_text())}
    assert {word for word in named if word != "AyeworkInstrumentor"} == alerts & named
    assert alerts & named


def test_exit_statuses_that_are_named_are_those_of_the_worker():
    told = {row[0] for row in table(SYMPTOMS, "A worker starts again and again")}
    statuses = {status for row in told for status in re.findall(r"^\d+", row)}
    documented = tables(section("reference/commands.md", "`ayework_worker`"))[1]
    assert {row[0] for row in documented} & statuses == {"0", "1", "70"}
    assert statuses - {"0", "1", "70"} == {str(128 + 9), str(128 + 11)}
