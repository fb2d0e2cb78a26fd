"""The catalogues of translations, and what people see of them."""

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import django
import polib
import pytest
from django.core.management import call_command
from django.utils.translation import override

from django_ayework import dependency, enqueue, explain, registry
from django_ayework.admin.pages import in_words
from django_ayework.progress import progress_url
from django_ayework.rules.formatting import Phrase, joined, phrase, phrases
from django_ayework.testing.factories import WorkerProcessFactory
from tests.admin.kit import address, assert_shows, die, logged
from tests.app.works import add
from tests.desk.population import pages, populate
from tests.messages import LANGUAGES, catalogue, key_of, texts

pytestmark = pytest.mark.vendors("sqlite")

PLACEHOLDER = re.compile(r"%\(\w+\)[sdg]|%[sr]|%%|\{\w*\}")
#: Texts that a page shows as they were stored, or that the tests' own models have.
STORED = re.compile(r"window\.broken|^lost$")
WORDS = re.compile(r"[A-Za-z]{2,} [a-z]{2,} [a-z]{2,}")

each_language = pytest.mark.parametrize("language", LANGUAGES)


@cache
def entries(language):
    """The entries of a catalogue."""
    return list(polib.pofile(str(catalogue(language))))


def translations(entry):
    return list(entry.msgstr_plural.values()) if entry.msgid_plural else [entry.msgstr]


def placeholders(text):
    return set(PLACEHOLDER.findall(text))


# The catalogues


@pytest.fixture(scope="module")
def marked():
    """The texts of the sources."""
    return set(texts())


@each_language
def test_a_catalogue_has_the_texts_of_the_sources_and_no_others_and_is_compiled(language, marked):
    path = catalogue(language)
    written, compiled = entries(language), polib.mofile(str(path.with_suffix(".mo")))
    known = [key_of(entry) for entry in written if not entry.obsolete]
    assert len(known) == len(set(known))
    assert set(known) == marked, "make messages brings the catalogues up to date"
    shown = {key_of(entry): translations(entry) for entry in written}
    assert {key_of(entry): translations(entry) for entry in compiled} == shown
    assert path.parts[-4:-1] == ("locale", language, "LC_MESSAGES")
    assert "*.mo" not in Path(path.parents[4] / ".gitignore").read_text()


@each_language
def test_every_text_is_translated_with_its_placeholders_and_begins_and_ends_as_it_does(language):
    wrong = []
    for entry in entries(language):
        forms = [entry.msgid, entry.msgid_plural] if entry.msgid_plural else [entry.msgid]
        for form, text in zip(forms, translations(entry), strict=True):
            lacks, added = placeholders(form) - placeholders(text), placeholders(text) - placeholders(form)
            # The form for one thing may do without the count.
            if added or (lacks and not (lacks == {"%(count)d"} and form != forms[-1])):
                wrong.append(("placeholders", form, text))
            ends = [
                (each[:1].isspace(), each[-1:].isspace(), each.endswith(".")) for each in (entry.msgid, text)
            ]
            if entry.fuzzy or not text or ends[0] != ends[1]:
                wrong.append(("translation", form, text))
    assert wrong == []


def test_a_language_of_the_reader_makes_no_migration(db):
    with override("de"):
        call_command("makemigrations", "django_ayework", check=True, dry_run=True, verbosity=0)


# Phrases


def test_a_phrase_is_its_english_text():
    text = phrases("%(count)d work of %(type)s", "%(count)d works of %(type)s", 2, type="a.b")
    assert text == "2 works of a.b" and isinstance(text, Phrase)
    assert phrase("100 % of it") == "100 % of it"
    assert in_words("no phrase") == "no phrase" and in_words(Phrase("bare")) == "bare"


def test_a_phrase_is_shown_in_the_current_language_with_all_that_is_in_it():
    inner = phrase("%(id)s is %(outcome)s", id="a", outcome=phrase("dead"))
    text = joined([phrase("%(items)s and %(count)d more", items=[inner, "b"], count=2), "Stored."])
    assert text == "a is dead, b and 2 more Stored."
    with override("de"):
        assert in_words(text) == "a ist tot, b und 2 weitere Stored."
        assert str(text) == "a is dead, b and 2 more Stored.", "programs get English"
    with override("en"):
        assert in_words(text) == text


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("de", {0: "0 Aufträge", 1: "1 Auftrag", 2: "2 Aufträge"}),
        ("fr", {0: "0 tâche", 1: "1 tâche", 2: "2 tâches"}),
        ("es", {0: "0 trabajos", 1: "1 trabajo"}),
        ("en", {0: "0 works", 1: "1 work"}),
    ],
)
def test_a_plural_is_that_of_the_language(language, expected):
    with override(language):
        assert {n: in_words(phrases("%(count)d work", "%(count)d works", n)) for n in expected} == expected


# Pages


@pytest.fixture
def in_language(operator, settings):
    """Requests choose their language; return a page as somebody sees it whose browser asks for one."""
    before = list(settings.MIDDLEWARE)
    at = before.index("django.contrib.sessions.middleware.SessionMiddleware") + 1
    settings.MIDDLEWARE = [*before[:at], "django.middleware.locale.LocaleMiddleware", *before[at:]]
    settings.LANGUAGE_CODE = "en"

    def in_language(language, url):
        response = operator.get(url, headers={"accept-language": language})
        assert response.status_code == 200, (url, response)
        return response.content.decode()

    return in_language


class Texts(HTMLParser):
    """The texts of a page: those between tags, and those of attributes that people read or hear."""

    def __init__(self, page):
        super().__init__()
        self.found, self.hidden = set(), 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.hidden += tag in ("script", "style", "pre", "textarea")
        for name, value in attrs:
            if name in ("title", "aria-label", "placeholder", "alt") and value:
                self.found.add(" ".join(value.split()))

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style", "pre", "textarea")

    def handle_data(self, data):
        if not self.hidden and data.strip():
            self.found.add(" ".join(data.split()))


@pytest.mark.django_db(transaction=True)
def test_no_page_of_the_desk_has_an_english_sentence_in_german(in_language):
    populate()
    ours = {entry.msgid for entry in entries("de") if entry.msgid not in translations(entry)}
    # Django translates its own texts for some languages only.
    root = Path(django.__file__).parent
    catalogues = (root / part / "locale/en/LC_MESSAGES/django.po" for part in ("conf", "contrib/admin"))
    not_ours = {entry.msgid for path in catalogues for entry in polib.pofile(str(path))}
    not_ours |= {part for name in registry.names() for part in (name, name.split(".")[0])}
    left = []
    for name, url in pages().items():
        english, german = (Texts(in_language(language, url)).found for language in ("en", "de"))
        assert english != german, name
        same = [text for text in english & german if not STORED.search(text) and text not in not_ours]
        left += [f"{name}: {text}" for text in same if WORDS.search(text) or text in ours]
    assert left == []


@pytest.mark.django_db
def test_a_work_says_why_in_the_language_of_the_reader(in_language):
    work = die("no luck")
    expected = {
        "en": "after 3 attempts. The last one failed: RuntimeError: no luck.",
        "de": "das Budget endete mit 3 Versuchen, der letzte schlug fehl: RuntimeError: no luck.",
        "fr": "son budget s’est épuisé avec 3 tentatives, la dernière a échoué\u00a0: RuntimeError: no luck.",
        "es": "su presupuesto terminó con 3 intentos, el último falló: RuntimeError: no luck.",
    }
    for language, text in expected.items():
        assert text in in_language(language, address("work_change", work.id)), language
    with override("de"):
        assert expected["en"] in str(explain(work.id)), "the call gives English"


@pytest.mark.django_db
def test_a_blocked_work_links_what_it_waits_for_in_every_language(in_language):
    watched = enqueue(add(a=1, b=2), delay=60)
    gate = address("gate_change", enqueue(dependency([watched, "later"], [add(a=3, b=4)])).id)
    assert_shows(in_language("de", gate), "Wartet, bis alle 2 Aufträge", f">{watched.id}</a>", "(geplant)")
    assert_shows(in_language("fr", gate), "Elle attend que toutes ses 2 tâches", f">{watched.id}</a>")


@pytest.mark.django_db
def test_the_overview_and_progress_pages_speak_the_language_of_the_reader_and_commands_english(
    in_language, capsys
):
    work = enqueue(add(a=1, b=2))
    overview, progress = address("overview_changelist"), progress_url(work)
    english = "No worker is running, and 1 work waits."
    for url, language, text in (
        (overview, "en", english),
        (overview, "de", "Kein Worker läuft, und 1 Auftrag wartet."),
        (overview, "fr", "Démarrez-en un\u00a0: manage.py ayework_worker"),
        (overview, "es", "No hay ningún worker en marcha, y 1 trabajo espera."),
        (progress, "en", "Waiting to start"),
        (progress, "de", "Wartet auf den Start"),
        (progress, "fr", "En attente de démarrage"),
    ):
        assert text in in_language(language, url)
    with override("de"):
        call_command("ayework_status")
        call_command("ayework_graph", work.id)
    assert_shows(capsys.readouterr().out, english, "0 of 1 works have ended.")


@pytest.mark.django_db
def test_messages_and_the_history_are_in_the_language_of_the_operator(operator, in_language):
    url = address("workerprocess_quiet", WorkerProcessFactory(name="blue").id)
    response = operator.post(url, headers={"accept-language": "de"}, follow=True)
    assert "Der Worker blue wurde angewiesen zu ruhen" in response.content.decode()
    [message] = logged()
    assert "Angewiesen zu ruhen" in message
