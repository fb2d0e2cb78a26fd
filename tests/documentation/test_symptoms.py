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
from tests.documentation import pages
from tests.documentation.pages import OPERATIONS, headings, listed, names, page, plain, section, table, tables
from tests.documentation.test_reference import COMMANDS, EVERYWHERE, options_of

#: Settings of Django, of servers and of tools that the pages name.
OTHERS = """
CONN_HEALTH_CHECKS CONN_MAX_AGE DISABLE_SERVER_SIDE_CURSORS INSTALLED_APPS SECRET_KEY SECRET_KEY_FALLBACKS
DATABASE_URL VERIFY_IDENTITY POSTGRES_DB POSTGRES_PASSWORD POSTGRES_USER OTEL_PROPAGATORS
PROMETHEUS_MULTIPROC_DIR
"""
SYMPTOMS = "operations/symptoms.md"
MODELS = list(apps.get_app_config("django_ayework").get_models())
CHECKS = {"database", "system_checks"}.union(diagnosis.CHECKS, *diagnosis.CHECKS_OF_SERVER.values())


@pytest.mark.parametrize("path", OPERATIONS, ids=lambda path: path.stem)
def test_settings_series_indexes_and_options_that_a_page_names_exist(path):
    code = list(pages.code_of(path))
    found = {word for each in code for word in re.findall(r"(?<![\w$])[A-Z]+(?:_[A-Z]+)+(?!\w)", each)}
    assert found - set(conf.KEYS) - set(OTHERS.split()) == set()
    known = {*COMMANDS, *pages.series(), *(index.name for model in MODELS for index in model._meta.indexes)}
    found = {word for each in code for word in re.findall(r"(?<![\w/.])ayework_[a-z_]+", each)}
    assert {word for word in found - known if not word.endswith(("_bucket", "_count", "_sum"))} == set()
    # Options that stand alone; those of other programs are named with their program.
    alone = {option for name in names(plain(path)) for option in re.findall(r"^--[\w-]+", name)}
    assert alone <= EVERYWHERE.union(*map(options_of, COMMANDS)) | {"--init"}


def test_the_list_of_symptoms_leads_to_each_section_in_order_and_each_says_what_to_do():
    rows = tables(page(SYMPTOMS).read_text())[0]
    linked = [re.findall(r"\[(.+)\]\(#([\w-]+)\)", row[0]) for row in rows]
    assert [text.lower() for [(text, _)] in linked] == [heading.lower() for heading in headings(SYMPTOMS)]
    assert {anchor for [(_, anchor)] in linked} <= anchors(page(SYMPTOMS))
    for heading in headings(SYMPTOMS):
        text = section(SYMPTOMS, heading)
        assert re.search(r"\]\(|`ayework_", text), heading  # a link or a command
        assert tables(text) or len(text.split()) > 20, heading


def test_checks_of_the_doctor_that_are_named_exist():
    assert set(listed("reference/commands.md", "`ayework_doctor`", 1)) == CHECKS
    found = re.findall(r"doctor`?: ((?:`\w+`(?:, )?)+)", page(SYMPTOMS).read_text())
    named = [name for each in found for name in re.findall(r"`(\w+)`", each)]
    assert len(named) > 15
    assert set(named) <= CHECKS
    told = re.compile(r"`ayework_doctor`[^.|]{0,60} under `(\w+)`|(?:doctor`?[^.]{0,60}) in `(\w+)`")
    for path in OPERATIONS:
        text = " ".join(path.read_text().split())
        assert {name for pair in told.findall(text) for name in pair if name} <= CHECKS, path


def test_codes_and_reasons_that_are_named_exist_and_all_of_them_are_in_a_symptom():
    text = set(names(FENCE.sub("", page(SYMPTOMS).read_text())))
    words = {name for name in text if re.fullmatch(r"(?!ayework_)[a-z]+(?:_[a-z]+)+", name)}
    options = {"sync_to_async", "transaction_mode", "max_running"}
    codes = words - CHECKS - options - {model._meta.db_table for model in MODELS}
    assert codes
    assert codes <= {*ProblemCode, *Code, *Reason}
    assert {*ProblemCode, *Reason} - text <= {"all_well", "deaths_rise", "schedule_fails"}


def test_alerts_that_are_named_exist():
    rules = yaml.safe_load(page("monitoring/ayework-alerts.yml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    named = {word for path in OPERATIONS for word in re.findall(r"`(Ayework[A-Z]\w+)`", path.read_text())}
    assert named - {"AyeworkInstrumentor"} == alerts & named
    assert alerts & named


def test_exit_statuses_that_are_named_are_those_of_the_worker():
    told = {row[0] for row in table(SYMPTOMS, "A worker starts again and again")}
    statuses = {status for row in told for status in re.findall(r"^\d+", row)}
    documented = table("reference/commands.md", "`ayework_worker`", 1)
    assert {row[0] for row in documented} & statuses == {"0", "1", "70"}
    assert statuses - {"0", "1", "70"} == {str(128 + 9), str(128 + 11)}
