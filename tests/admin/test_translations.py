"""The catalogues of translations, and what people see of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import django
import polib
import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.test import Client
from django.utils.translation import override

from django_ayework import dependency, enqueue, explain, registry
from django_ayework.admin.pages import in_words
from django_ayework.progress import progress_url
from django_ayework.rules.formatting import Phrase, joined, phrase, phrases
from django_ayework.testing.factories import WorkerProcessFactory
from tests.admin.kit import address, assert_shows, die
from tests.app.works import add
from tests.desk.population import pages, populate
from tests.messages import LANGUAGES, Key, catalogue, key_of, texts

PLACEHOLDER = re.compile(r"%\(\w+\)[sdg]|%[sr]|%%|\{\w*\}")
#: Texts that a page shows as they were stored, or that the tests' own models have.
STORED = re.compile(r"window\.broken|^lost$")
WORDS = re.compile(r"[A-Za-z]{2,} [a-z]{2,} [a-z]{2,}")

each_language = pytest.mark.parametrize("language", LANGUAGES)


def entries(language: str) -> Iterator[polib.POEntry]:
    yield from polib.pofile(str(catalogue(language)))


def texts_of_django() -> set[str]:
    """Return the texts of Django and of its admin, which Django translates for some languages only."""
    root = Path(django.__file__).parent
    catalogues = (root / part / "locale/en/LC_MESSAGES/django.po" for part in ("conf", "contrib/admin"))
    return {entry.msgid for path in catalogues for entry in polib.pofile(str(path))}


def translations(entry: polib.POEntry) -> list[str]:
    return list(entry.msgstr_plural.values()) if entry.msgid_plural else [entry.msgstr]


def placeholders(text: str) -> set[str]:
    return set(PLACEHOLDER.findall(text))


# The catalogues


@pytest.fixture(scope="module")
def marked() -> set[Key]:
    """The texts of the sources."""
    return set(texts())


@each_language
def test_a_catalogue_has_the_texts_of_the_sources_and_no_others(language: str, marked: set[Key]) -> None:
    known = [key_of(entry) for entry in entries(language) if not entry.obsolete]
    assert len(known) == len(set(known))
    assert set(known) == marked, "make messages brings the catalogues up to date"


@each_language
def test_every_text_is_translated(language: str) -> None:
    lacking = [entry.msgid for entry in entries(language) if entry.fuzzy or not all(translations(entry))]
    assert lacking == []


@each_language
def test_a_translation_has_the_placeholders_of_its_text(language: str) -> None:
    wrong = []
    for entry in entries(language):
        forms = [entry.msgid, entry.msgid_plural] if entry.msgid_plural else [entry.msgid]
        for form, text in zip(forms, translations(entry), strict=True):
            lacks, added = placeholders(form) - placeholders(text), placeholders(text) - placeholders(form)
            # The form for one thing may do without the count.
            if added or (lacks and not (lacks == {"%(count)d"} and form != forms[-1])):
                wrong.append((form, text))
    assert wrong == []


@each_language
def test_a_translation_begins_and_ends_as_its_text_does(language: str) -> None:
    for entry in entries(language):
        for text in translations(entry):
            assert text[:1].isspace() == entry.msgid[:1].isspace(), text
            assert text[-1:].isspace() == entry.msgid[-1:].isspace(), text
            assert text.endswith(".") == entry.msgid.endswith("."), text


@each_language
def test_the_compiled_catalogue_is_that_of_the_text(language: str) -> None:
    path = catalogue(language)

    def shown(found: Any) -> dict[Key, list[str]]:
        return {key_of(entry): translations(entry) for entry in found}

    assert shown(polib.mofile(str(path.with_suffix(".mo")))) == shown(polib.pofile(str(path)))


def test_an_installed_package_has_the_catalogues() -> None:
    for language in LANGUAGES:
        assert catalogue(language).parent.parent.parent.name == "locale"
        assert catalogue(language).with_suffix(".mo").stat().st_size > 10_000
    assert "*.mo" not in Path(catalogue("de").parents[4] / ".gitignore").read_text()


def test_a_language_of_the_reader_makes_no_migration(db: None) -> None:
    with override("de"):
        call_command("makemigrations", "django_ayework", check=True, dry_run=True, verbosity=0)


# Phrases


def test_a_phrase_is_its_english_text() -> None:
    text = phrases("%(count)d work of %(type)s", "%(count)d works of %(type)s", 2, type="a.b")
    assert text == "2 works of a.b" and isinstance(text, Phrase)
    assert phrase("100 % of it") == "100 % of it"
    assert in_words("no phrase") == "no phrase" and in_words(Phrase("bare")) == "bare"


def test_a_phrase_is_shown_in_the_current_language_with_all_that_is_in_it() -> None:
    inner = phrase("%(id)s is %(outcome)s", id="a", outcome=phrase("dead"))
    text = joined([phrase("%(items)s and %(count)d more", items=[inner, "b"], count=2), "Stored."])
    assert text == "a is dead, b and 2 more Stored."
    with override("de"):
        assert in_words(text) == "a ist tot, b und 2 weitere Stored."
        assert str(text) == "a is dead, b and 2 more Stored.", "programs get English"
    with override("en"):
        assert in_words(text) == text


@pytest.mark.parametrize(
    ("language", "count", "text"),
    [
        ("de", 1, "1 Auftrag"),
        ("de", 0, "0 Aufträge"),
        ("de", 2, "2 Aufträge"),
        ("fr", 0, "0 tâche"),
        ("fr", 1, "1 tâche"),
        ("fr", 2, "2 tâches"),
        ("es", 0, "0 trabajos"),
        ("es", 1, "1 trabajo"),
        ("en", 1, "1 work"),
        ("en", 0, "0 works"),
    ],
)
def test_a_plural_is_that_of_the_language(language: str, count: int, text: str) -> None:
    with override(language):
        assert in_words(phrases("%(count)d work", "%(count)d works", count)) == text


# Pages


@pytest.fixture
def localised(settings: Any) -> None:
    """Requests choose their language."""
    before = list(settings.MIDDLEWARE)
    at = before.index("django.contrib.sessions.middleware.SessionMiddleware") + 1
    settings.MIDDLEWARE = [*before[:at], "django.middleware.locale.LocaleMiddleware", *before[at:]]
    settings.LANGUAGE_CODE = "en"


def page_in(language: str, client: Client, url: str) -> str:
    """Return a page as somebody sees it whose browser asks for a language."""
    response = client.get(url, headers={"accept-language": language})
    assert response.status_code == 200, (url, response)
    return response.content.decode()


class Texts(HTMLParser):
    """The texts of a page: those between tags, and those of attributes that people read or hear."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.hidden = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.hidden += tag in ("script", "style", "pre", "textarea")
        for name, value in attrs:
            if name in ("title", "aria-label", "placeholder", "alt") and value:
                self.found.add(" ".join(value.split()))

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("script", "style", "pre", "textarea")

    def handle_data(self, data: str) -> None:
        if not self.hidden and data.strip():
            self.found.add(" ".join(data.split()))


@pytest.mark.django_db(transaction=True)
@pytest.mark.vendors("sqlite")
def test_no_page_of_the_desk_has_an_english_sentence_in_german(operator: Client, localised: None) -> None:
    populate()
    ours = {entry.msgid for entry in entries("de") if entry.msgid not in translations(entry)}
    names = {part for name in registry.names() for part in (name, name.split(".")[0])}
    not_ours = texts_of_django() | names
    left = []
    for name, url in pages().items():
        english, german = (Texts(page_in(language, operator, url)).found for language in ("en", "de"))
        assert english != german, name
        same = [text for text in english & german if not STORED.search(text) and text not in not_ours]
        left += [f"{name}: {text}" for text in same if WORDS.search(text) or text in ours]
    assert left == []


@pytest.mark.django_db
def test_a_work_says_why_in_three_languages(operator: Client, localised: None) -> None:
    work = die("no luck")
    url = address("work_change", work.id)
    expected = {
        "en": "after 3 attempts. The last one failed: RuntimeError: no luck.",
        "de": "das Budget endete mit 3 Versuchen, der letzte schlug fehl: RuntimeError: no luck.",
        "fr": "son budget s’est épuisé avec 3 tentatives, la dernière a échoué\u00a0: RuntimeError: no luck.",
        "es": "su presupuesto terminó con 3 intentos, el último falló: RuntimeError: no luck.",
    }
    for language, text in expected.items():
        assert text in page_in(language, operator, url), language
    with override("de"):
        assert expected["en"] in str(explain(work.id)), "the call gives English"


@pytest.mark.django_db
def test_a_blocked_work_links_what_it_waits_for_in_every_language(operator: Client, localised: None) -> None:
    watched = enqueue(add(a=1, b=2), delay=60)
    gate = enqueue(dependency([watched, "later"], [add(a=3, b=4)]))
    for language, text in (
        ("de", "Wartet, bis alle 2 Aufträge"),
        ("fr", "Elle attend que toutes ses 2 tâches"),
    ):
        page = page_in(language, operator, address("gate_change", gate.id))
        assert text in page
        assert f">{watched.id}</a>" in page
    assert "(geplant)" in page_in("de", operator, address("gate_change", gate.id))


@pytest.mark.django_db
def test_the_overview_says_what_is_wrong_in_the_language_of_the_reader(
    operator: Client, localised: None
) -> None:
    enqueue(add(a=1, b=2))
    url = address("overview_changelist")
    assert "No worker is running, and 1 work waits." in page_in("en", operator, url)
    assert "Kein Worker läuft, und 1 Auftrag wartet." in page_in("de", operator, url)
    assert "Démarrez-en un\u00a0: manage.py ayework_worker" in page_in("fr", operator, url)
    assert "No hay ningún worker en marcha, y 1 trabajo espera." in page_in("es", operator, url)


@pytest.mark.django_db
def test_messages_and_the_history_are_in_the_language_of_the_operator(
    operator: Client, localised: None
) -> None:
    worker = WorkerProcessFactory(name="blue")
    url = address("workerprocess_quiet", worker.id)
    response = operator.post(url, headers={"accept-language": "de"}, follow=True)
    assert "Der Worker blue wurde angewiesen zu ruhen" in response.content.decode()
    assert "Angewiesen zu ruhen" in LogEntry.objects.get().get_change_message()


@pytest.mark.django_db
def test_a_progress_page_is_in_the_language_of_its_reader(client: Client, localised: None) -> None:
    url = progress_url(enqueue(add(a=1, b=2)))
    assert "Waiting to start" in page_in("en", client, url)
    assert "Wartet auf den Start" in page_in("de", client, url)
    assert "En attente de démarrage" in page_in("fr", client, url)


@pytest.mark.django_db
def test_a_command_speaks_english(capsys: pytest.CaptureFixture[str]) -> None:
    work = enqueue(add(a=1, b=2))
    with override("de"):
        call_command("ayework_status")
        call_command("ayework_graph", work.id)
    printed = capsys.readouterr().out
    assert_shows(printed, "No worker is running, and 1 work waits.", "0 of 1 works have ended.")
