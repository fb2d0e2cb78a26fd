"""Messages and symptoms lead to their entries, each entry is of one, and what the pages name is there."""

from __future__ import annotations

import re
import traceback
from functools import cache

import pytest
import yaml
from django.apps import apps
from django.core.checks import run_checks
from django.core.management import call_command
from django.core.management.base import CommandError
from docutils.core import publish_doctree
from myst_parser.parsers.docutils_ import Parser

import django_ayework as ayework
from django_ayework import Context, Retry, conf, enqueue, errors, work
from django_ayework.checks import check_settings
from django_ayework.documentation import SITE, anchor, entry_url
from django_ayework.flow import diagnosis
from django_ayework.flow.diagnosis import CHECKS, CHECKS_OF_SERVER
from django_ayework.models import Attempt
from django_ayework.rules.explain import Code
from django_ayework.rules.predeploy import Cause
from django_ayework.rules.problems import ProblemCode
from django_ayework.rules.states import Reason
from django_ayework.testing import drain, running_worker
from tests.docs import FENCE, ROOT, anchors
from tests.documentation import pages
from tests.documentation.messages import INSTRUCTIONS, OWN, Entry, Message, entries, messages, says
from tests.documentation.pages import OPERATIONS, headings, listed, names, page, plain, section, table, tables
from tests.documentation.test_reference import COMMANDS, EVERYWHERE, options_of
from tests.fixtures import quick_polls  # noqa: F401
from tests.processes import eventually

PAGES = ("errors", "checks", "commands", "log", "works", "doctor")
#: The pages whose messages are read out of the source, all of them.
READ = ("errors", "checks", "commands", "log")
#: Records that lead nowhere: a traceback of each failed attempt follows one, and one has Django's own words.
FAILED = "Work … (…) failed (…), and is tried again at …: …"
WITHOUT_LINK = (FAILED, "Error calling … in Signal.send_robust()")
#: Entries whose sentences are made by the rules: a code of the rule is the code of the entry.
CODES = {"works": {*Code}, "doctor": {*ProblemCode, *Cause, "database", "system_checks", *CHECKS}}
CODES["doctor"].update(*CHECKS_OF_SERVER.values())


@cache
def entry(name: str, code: str) -> Entry | None:
    """Return the entry of a code on a page."""
    return next((each for each in entries(name) if anchor(each.code) == anchor(code)), None)


def of(name: str) -> list[tuple[str, Message]]:
    """Return the messages whose entries are on a page, by their codes.

    In one of them, the phase of an error is filled in.
    """
    phases = ("hook", "commit", "queue", "pubsub")
    found = [each for each in messages() if each.page == name and each.code]
    return [
        (code, each)
        for each in found
        for code in ([each.code.replace("…", phase) for phase in phases] if "…" in each.code else [each.code])
    ]


def entry_at(url: str | None) -> Entry:
    """Return the entry at an address that a message gave."""
    found = re.fullmatch(rf"{re.escape(SITE)}troubleshooting/(\w+)\.html#([a-z0-9-]+)", url or "")
    assert found is not None, url
    there = entry(found[1], found[2])
    assert there is not None, url
    return there


def address_in(text: str) -> str:
    """Return the one address in a text."""
    [url] = re.findall(rf"{re.escape(SITE)}[^\s)]+", text)
    return url


def is_said(there: Entry | None, text: str) -> bool:
    return there is not None and any(says(sentence, text) for sentence in there.sentences)


# The pages and the source


@pytest.mark.parametrize("name", READ)
def test_each_message_of_the_source_has_an_entry_with_its_sentence_and_each_sentence_is_of_the_source(name):
    known: dict[str, list[str]] = {}
    for code, message in of(name):
        there = entry(name, code)
        assert there is not None, message
        known.setdefault(anchor(code), []).extend(message.templates)
        for template in message.templates:
            assert any(says(template, sentence) for sentence in there.sentences), message
    for each in entries(name):
        assert each.sentences, each.code
        templates = known.pop(anchor(each.code), None)
        if name == "log" and each.code == "work-failed":
            templates = [WITHOUT_LINK[0]]
        assert templates is not None, f"{name}: nothing leads to {each.code}"
        for sentence in each.sentences:
            assert not templates or any(says(template, sentence) for template in templates), sentence
    assert known == {}


def test_every_error_and_record_of_the_source_leads_to_an_entry():
    codeless = [message for message in messages() if not message.code]
    aimless = [each for each in codeless if not any(template in WITHOUT_LINK for template in each.templates)]
    # Helpers get the code from those who call them.
    assert {message.place.split(":")[0] for message in aimless} <= {"define/context.py"}
    assert [name for name in INSTRUCTIONS if OWN[name].entry] == []


@pytest.mark.parametrize("name", CODES)
def test_each_code_of_the_rules_has_an_entry_and_each_entry_is_of_a_code(name):
    assert sorted(each.code for each in entries(name)) == sorted(anchor(code) for code in CODES[name])


def test_all_ids_of_the_reference_of_checks_have_an_entry():
    ids = listed("reference/checks.md", "System checks")
    assert {anchor(id) for id in ids} == {anchor(each.code) for each in entries("checks")}


@pytest.mark.parametrize("name", PAGES)
def test_an_entry_is_short_and_its_heading_is_the_anchor_that_its_address_has(name):
    """On the site, and where GitHub shows the page."""
    path, found = page(f"troubleshooting/{name}.md"), entries(name)
    overrides = {"myst_heading_anchors": 4, "report_level": 5, "doctitle_xform": False}
    tree = publish_doctree(path.read_text(), parser=Parser(), settings_overrides=overrides)
    ids = {id for section in tree.findall(lambda node: node.tagname == "section") for id in section["ids"]}
    assert len({anchor(each.code) for each in found}) == len(found)
    for each in found:
        assert 1 <= len([line for line in each.text.strip().splitlines() if line]) <= 6, each.code
        assert anchor(each.code) == each.code.lower()
        assert each.code.lower() in ids & anchors(path)


def test_the_address_is_that_of_the_site():
    assert f'Changelog = "{SITE}' in (ROOT / "pyproject.toml").read_text()
    assert entry_url("checks", "ayework.E001") == f"{SITE}troubleshooting/checks.html#ayework-e001"


# Real messages


@work(name="t.help.add")
def add(a: int, b: int) -> int:
    return a + b


@work(name="t.help.failing", retry=Retry(attempts=1))
def failing() -> None:
    raise RuntimeError("no luck")


@work(name="t.help.dropping", retry=Retry(attempts=1))
def dropping(ctx: Context) -> int:
    ctx.queue([add(a=1, b=2)])
    return 1


def methods() -> None:
    class Shop:
        @work(name="t.help.method")
        def send(self) -> None: ...


def wait_for_dead() -> None:
    handle = enqueue(failing())
    drain(raises=False)
    handle.result(timeout=0)


def wait_in_transaction() -> None:
    enqueue(add(a=1, b=2)).result(timeout=0)


#: A message of each group: what provokes it, its class, and its code.
PROVOKED = {
    "describing": (methods, errors.ImproperWork, "method-as-work"),
    "an option": (lambda: work(weight=0)(add.handler), errors.InvalidOption, "option-not-usable"),
    "an unknown option": (lambda: enqueue(add(a=1, b=2), prioriti=3), TypeError, "unknown-option"),
    "a duration": (lambda: enqueue(add(a=1, b=2), delay="5m"), TypeError, "duration-not-usable"),
    "a schedule": (
        lambda: ayework.schedule("61 * * * *", run=add(a=1, b=2), name="t"),
        errors.CronError, "cron-not-usable",
    ),
    "enqueueing": (lambda: enqueue(add(a=object(), b=2)), errors.NotEncodable, "not-encodable"),
    "arguments": (lambda: add(a=1), TypeError, "arguments-do-not-fit"),
    "waiting": (wait_for_dead, errors.WorkFailed, "work-failed"),
    "in a transaction": (wait_in_transaction, errors.WaitInTransaction, "wait-in-transaction"),
    "acting": (lambda: ayework.cancel("nobody"), errors.WorkNotFound, "work-not-found"),
    "retrying": (lambda: ayework.retry(enqueue(add(a=1, b=2)).id), errors.NotRetryable, "not-retryable"),
}  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("group", PROVOKED)
def test_a_traceback_leads_to_the_entry_on_a_line_of_its_own(group):
    provoke, kind, code = PROVOKED[group]
    with pytest.raises(kind) as raised:
        provoke()
    *_, message, link = "".join(traceback.format_exception(raised.value)).splitlines()
    there = entry_at(link.removeprefix("See "))
    assert there.code == code
    assert is_said(there, str(raised.value))
    assert SITE not in str(raised.value) and SITE not in message
    if isinstance(raised.value, errors.AyeworkError):
        assert (raised.value.code, raised.value.docs_url) == (code, address_in(link))


@pytest.mark.django_db
def test_the_error_of_a_work_has_no_address_and_its_traceback_has_it_once():
    handle = enqueue(dropping())
    drain(raises=False)
    state = handle.state()
    assert state is not None and state.error.startswith("InvalidInstruction: ")
    assert SITE not in state.error
    [text] = Attempt.objects.filter(work_id=handle.id).values_list("traceback", flat=True)
    assert entry_at(address_in(text)).code == "instruction-not-returned"
    with pytest.raises(errors.InvalidInstruction) as raised:
        enqueue(dropping())
        drain()
    assert raised.value.code == "instruction-not-returned"


def test_what_a_handler_raises_on_purpose_leads_nowhere_and_an_error_of_a_project_to_that_of_its_class():
    class Mine(errors.InvalidOption):
        pass

    for instruction in (ayework.Abort("no"), ayework.Defer(delay=1)):
        assert (instruction.code, instruction.docs_url) == ("", None)
        assert SITE not in "".join(traceback.format_exception(instruction))
    assert Mine("no").code == "option-not-usable"
    assert Mine("no", code="unit-not-usable").docs_url == entry_url("errors", "unit-not-usable")


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize("arguments", [
    ["ayework_cancel"], ["ayework_explain", "nobody"], ["ayework_prune", "--batch", "0"],
])  # fmt: skip
def test_a_command_line_prints_the_address_below_the_error(arguments, capsys, monkeypatch):
    from django.core.management import ManagementUtility

    with pytest.raises(CommandError) as raised:
        call_command(*arguments)
    assert SITE not in str(raised.value)
    with pytest.raises(SystemExit) as ended:
        ManagementUtility(["manage.py", *arguments]).execute()
    message, link = capsys.readouterr().err.splitlines()
    assert (ended.value.code, message) == (1, f"CommandError: {raised.value}")
    assert is_said(entry_at(link.removeprefix("See ")), str(raised.value))


def test_the_hint_of_a_check_ends_with_the_address_or_is_the_address(settings):
    settings.AYEWORK = {"QUEUE": 1}
    [message] = check_settings(None)
    assert message.hint.startswith("Did you mean 'QUEUES'? See ")
    there = entry_at(address_in(message.hint))
    assert there.code == "ayework-E001" and is_said(there, message.msg)
    settings.AYEWORK = {"CONCURRENCY": 0}
    [message] = [each for each in run_checks(tags=["ayework"]) if each.id == "ayework.E002"]
    assert entry_at(message.hint.removeprefix("See ")).code == "ayework-E002"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick_polls")
def test_the_record_of_a_dead_work_ends_with_the_address(caplog):
    with running_worker(concurrency=1):
        enqueue(failing())
        eventually(lambda: "is dead" in caplog.text)
    [record] = [each.getMessage() for each in caplog.records if "is dead" in each.getMessage()]
    assert entry_at(address_in(record)).code == "work-dead"
    assert record.splitlines()[-1] == f"(see {entry_url('log', 'work-dead')})"


@pytest.mark.django_db
def test_the_reasons_of_works_are_sentences_of_their_entries():
    failed = enqueue(failing())
    drain(raises=False)
    waiting, later = enqueue(add(a=1, b=2)), enqueue(add(a=1, b=2), delay=600)
    reasons = [reason for id in (failed.id, waiting.id, later.id) for reason in ayework.explain(id).reasons]
    ayework.pause(type="t.help.add")
    reasons += ayework.explain(waiting.id).reasons
    ayework.resume(type="t.help.add")
    expected = {Code.EXHAUSTED, Code.NO_WORKER, Code.TYPE_PAUSED, Code.NOT_DUE}
    assert {reason.code for reason in reasons} >= expected
    for reason in reasons:
        assert is_said(entry("works", reason.code), reason.text), reason.text


#: Settings of Django, of servers and of tools that the pages name.
OTHERS = """
CONN_HEALTH_CHECKS CONN_MAX_AGE DISABLE_SERVER_SIDE_CURSORS INSTALLED_APPS SECRET_KEY SECRET_KEY_FALLBACKS
DATABASE_URL VERIFY_IDENTITY POSTGRES_DB POSTGRES_PASSWORD POSTGRES_USER OTEL_PROPAGATORS
OTEL_PYTHON_LOG_CORRELATION PROMETHEUS_MULTIPROC_DIR
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
