"""Each message has an entry under Troubleshooting and leads to it, and each entry is of a message."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.core.management.base import CommandError
from docutils.core import publish_doctree
from docutils.nodes import make_id
from myst_parser.parsers.docutils_ import Parser

from django_ayework import (
    Abort,
    Context,
    CronError,
    Defer,
    NotEncodable,
    NotRetryable,
    Retry,
    WaitInTransaction,
    WorkFailed,
    WorkNotFound,
    cancel,
    enqueue,
    explain,
    pause,
    resume,
    retry,
    schedule,
    work,
)
from django_ayework.checks import check_settings
from django_ayework.documentation import SITE, anchor, entry_url
from django_ayework.errors import AyeworkError, ImproperWork, InvalidInstruction, InvalidOption
from django_ayework.flow.diagnosis import CHECKS, CHECKS_OF_SERVER
from django_ayework.models import Attempt
from django_ayework.rules.explain import Code
from django_ayework.rules.predeploy import Cause
from django_ayework.rules.problems import ProblemCode
from django_ayework.testing import drain, running_worker
from tests.docs import ROOT, anchors
from tests.documentation.messages import INSTRUCTIONS, OWN, Entry, Message, entries, messages, says
from tests.documentation.pages import names, page, tables
from tests.fixtures import quick_polls  # noqa: F401
from tests.processes import eventually

PAGES = ("errors", "checks", "commands", "log", "works", "doctor")
#: The pages whose messages are read out of the source, all of them.
READ = ("errors", "checks", "commands", "log")
#: Records that lead nowhere: a traceback of each failed attempt follows one, and one has Django's own words.
WITHOUT_LINK = (
    "Work … (…) failed (…), and is tried again at …: …",
    "Error calling … in Signal.send_robust()",
)
#: Entries whose sentences are made by the rules: a code of the rule is the code of the entry.
CODES = {
    "works": {*Code},
    "doctor": {*ProblemCode, *Cause, "database", "system_checks", *CHECKS}
    | {name for checks in CHECKS_OF_SERVER.values() for name in checks},
}


@cache
def entry(name: str, code: str) -> Entry | None:
    """Return the entry of a code on a page."""
    return next((each for each in entries(name) if anchor(each.code) == anchor(code)), None)


def of(name: str) -> list[Message]:
    """Return the messages whose entries are on a page."""
    return [each for each in messages() if each.page == name and each.code]


def codes_of(message: Message) -> list[str]:
    """Return the codes of a message; in one of them, the phase of an error is filled in."""
    phases = ("hook", "commit", "queue", "pubsub")
    return [message.code.replace("…", phase) for phase in phases] if "…" in message.code else [message.code]


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


# The pages and the source


@pytest.mark.parametrize("name", READ)
def test_each_message_of_the_source_has_an_entry_with_its_sentence(name):
    for message in of(name):
        for code in codes_of(message):
            there = entry(name, code)
            assert there is not None, message
            for template in message.templates:
                assert any(says(template, sentence) for sentence in there.sentences), message


@pytest.mark.parametrize("name", READ)
def test_each_sentence_of_an_entry_is_one_of_the_source(name):
    known: dict[str, list[str]] = {}
    for message in of(name):
        for code in codes_of(message):
            known.setdefault(anchor(code), []).extend(message.templates)
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
    aimless = [
        message
        for message in messages()
        if not message.code and not any(each in WITHOUT_LINK for each in message.templates)
    ]
    # Helpers get the code from those who call them.
    assert {message.place.split(":")[0] for message in aimless} <= {"define/context.py"}
    assert [name for name in INSTRUCTIONS if OWN[name].entry] == []


@pytest.mark.parametrize("name", CODES)
def test_each_code_of_the_rules_has_an_entry_and_each_entry_is_of_a_code(name):
    assert sorted(each.code for each in entries(name)) == sorted(anchor(code) for code in CODES[name])


def test_all_ids_of_the_reference_of_checks_have_an_entry():
    ids = {names(row[0])[0] for row in tables(page("reference/checks.md").read_text())[0]}
    assert {anchor(id) for id in ids} == {anchor(each.code) for each in entries("checks")}


@pytest.mark.parametrize("name", PAGES)
def test_an_entry_is_short_and_its_heading_is_the_anchor_that_its_address_has(name):
    found = entries(name)
    assert len({anchor(each.code) for each in found}) == len(found)
    for each in found:
        lines = [line for line in each.text.strip().splitlines() if line]
        assert 1 <= len(lines) <= 6, each.code
        # Sphinx makes ids of headings by docutils, and GitHub in its own way.
        assert make_id(each.code) == anchor(each.code) == each.code.lower()
        assert each.code.lower() in anchors(page(f"troubleshooting/{name}.md"))


@pytest.mark.parametrize("name", PAGES)
def test_the_page_as_sphinx_parses_it_has_the_ids(name):
    tree = publish_doctree(
        page(f"troubleshooting/{name}.md").read_text(),
        parser=Parser(),
        settings_overrides={"myst_heading_anchors": 4, "report_level": 5, "doctitle_xform": False},
    )
    ids = {id for section in tree.findall(lambda node: node.tagname == "section") for id in section["ids"]}
    assert {anchor(each.code) for each in entries(name)} <= ids


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


def retry_live() -> None:
    retry(enqueue(add(a=1, b=2)).id)


def wait_for_dead() -> None:
    handle = enqueue(failing())
    drain(raises=False)
    handle.result(timeout=0)


#: A message of each group: what provokes it, its class, and its code.
PROVOKED: dict[str, tuple[Callable[[], Any], type[BaseException], str]] = {
    "describing": (methods, ImproperWork, "method-as-work"),
    "an option": (lambda: work(weight=0)(add.handler), InvalidOption, "option-not-usable"),
    "an unknown option": (lambda: enqueue(add(a=1, b=2), prioriti=3), TypeError, "unknown-option"),  # type: ignore[call-arg]
    "a duration": (lambda: enqueue(add(a=1, b=2), delay="5m"), TypeError, "duration-not-usable"),  # type: ignore[arg-type]
    "a schedule": (lambda: schedule("61 * * * *", run=add(a=1, b=2), name="t"), CronError, "cron-not-usable"),
    "enqueueing": (lambda: enqueue(add(a=object(), b=2)), NotEncodable, "not-encodable"),  # type: ignore[arg-type]
    "arguments": (lambda: add(a=1), TypeError, "arguments-do-not-fit"),  # type: ignore[call-arg]
    "waiting": (wait_for_dead, WorkFailed, "work-failed"),
    "waiting in a transaction": (
        lambda: enqueue(add(a=1, b=2)).result(timeout=0),
        WaitInTransaction,
        "wait-in-transaction",
    ),
    "acting": (lambda: cancel("nobody"), WorkNotFound, "work-not-found"),
    "retrying": (retry_live, NotRetryable, "not-retryable"),
}


@pytest.mark.django_db
@pytest.mark.parametrize("group", PROVOKED)
def test_a_traceback_leads_to_the_entry_on_a_line_of_its_own(group):
    provoke, kind, code = PROVOKED[group]
    with pytest.raises(kind) as raised:
        provoke()
    *_, message, link = "".join(traceback.format_exception(raised.value)).splitlines()
    there = entry_at(link.removeprefix("See "))
    assert there.code == code
    assert any(says(sentence, str(raised.value)) for sentence in there.sentences)
    assert SITE not in str(raised.value) and SITE not in message
    if isinstance(raised.value, AyeworkError):
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
    with pytest.raises(InvalidInstruction) as raised:
        enqueue(dropping())
        drain()
    assert raised.value.code == "instruction-not-returned"


def test_what_a_handler_raises_on_purpose_leads_nowhere():
    for instruction in (Abort("no"), Defer(delay=1)):
        assert (instruction.code, instruction.docs_url) == ("", None)
        assert SITE not in "".join(traceback.format_exception(instruction))


def test_an_error_of_a_project_has_the_entry_of_its_class():
    class Mine(InvalidOption):
        pass

    assert Mine("no").code == "option-not-usable"
    assert Mine("no", code="unit-not-usable").docs_url == entry_url("errors", "unit-not-usable")


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize(
    "arguments", [["ayework_cancel"], ["ayework_explain", "nobody"], ["ayework_prune", "--batch", "0"]]
)
def test_a_command_line_prints_the_address_below_the_error(arguments, capsys, monkeypatch):
    from django.core.management import ManagementUtility

    with pytest.raises(CommandError) as raised:
        call_command(*arguments)
    assert SITE not in str(raised.value)
    with pytest.raises(SystemExit) as ended:
        ManagementUtility(["manage.py", *arguments]).execute()
    message, link = capsys.readouterr().err.splitlines()
    assert (ended.value.code, message) == (1, f"CommandError: {raised.value}")
    there = entry_at(link.removeprefix("See "))
    assert any(says(sentence, str(raised.value)) for sentence in there.sentences)


def test_the_hint_of_a_check_ends_with_the_address(settings):
    settings.AYEWORK = {"QUEUE": 1}
    [message] = check_settings(None)
    assert message.hint is not None and message.hint.startswith("Did you mean 'QUEUES'? See ")
    assert entry_at(address_in(message.hint)).code == "ayework-E001"
    assert any(says(sentence, message.msg) for sentence in entry_at(address_in(message.hint)).sentences)


def test_a_check_without_a_hint_gets_the_address_as_its_hint(settings):
    settings.AYEWORK = {"CONCURRENCY": 0}
    [message] = [each for each in run_checks(tags=["ayework"]) if each.id == "ayework.E002"]
    assert entry_at((message.hint or "").removeprefix("See ")).code == "ayework-E002"


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
    reasons = [reason for id in (failed.id, waiting.id, later.id) for reason in explain(id).reasons]
    pause(type="t.help.add")
    reasons += explain(waiting.id).reasons
    resume(type="t.help.add")
    assert {reason.code for reason in reasons} >= {
        Code.EXHAUSTED,
        Code.NO_WORKER,
        Code.TYPE_PAUSED,
        Code.NOT_DUE,
    }
    for reason in reasons:
        there = entry("works", reason.code)
        assert there is not None
        assert any(says(sentence, reason.text) for sentence in there.sentences), reason.text
