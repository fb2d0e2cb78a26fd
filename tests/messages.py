"""The catalogues of translations: extracts all marked texts, merges them in, compiles (``make messages``)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import polib
from babel.messages.extract import extract
from django.utils.translation.template import templatize

PACKAGE = Path(__file__).parent.parent / "django_ayework"
LANGUAGES = ("de", "fr", "es")
#: The functions that mark a text, and which of their arguments are texts. ``phrase`` is that of the rules.
KEYWORDS = {
    "_": None,
    "gettext": None,
    "gettext_lazy": None,
    "gettext_noop": None,
    "ngettext": (1, 2),
    "ngettext_lazy": (1, 2),
    "pgettext": ((1, "c"), 2),
    "pgettext_lazy": ((1, "c"), 2),
    "npgettext": ((1, "c"), 2, 3),
    "phrase": None,
    "phrases": (1, 2),
}
TEMPLATES = {".html", ".txt", ".svg"}

#: The context, the text, and its plural, each empty where there is none.
Key = tuple[str, str, str]


def catalogue(language: str) -> Path:
    """Return the catalogue of a language."""
    return PACKAGE / "locale" / language / "LC_MESSAGES" / "django.po"


def sources() -> Iterator[Path]:
    """Return the modules and the templates of the package."""
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix == ".py" or (path.suffix in TEMPLATES and "templates" in path.parts):
            yield path


def texts() -> dict[Key, list[str]]:
    """Return every marked text of the sources, with the files that have it."""
    found: dict[Key, dict[str, None]] = {}
    for path in sources():
        file = str(path.relative_to(PACKAGE.parent))
        source = path.read_text()
        if path.suffix != ".py":
            source = templatize(source, origin=file)
        marked = extract("python", BytesIO(source.encode()), keywords=KEYWORDS)
        for _, message, _, context in marked:
            one, many = message if isinstance(message, tuple) else (message, "")
            found.setdefault((context or "", one, many), {})[file] = None
    return {key: list(files) for key, files in found.items()}


def key_of(entry: polib.POEntry) -> Key:
    """Return the key of an entry of a catalogue."""
    return entry.msgctxt or "", entry.msgid, entry.msgid_plural or ""


def merge(language: str) -> list[Key]:
    """Write the catalogue of a language with all texts of the sources; return those without a translation."""
    path = catalogue(language)
    old = polib.pofile(str(path), wrapwidth=100)
    known = {key_of(entry): entry for entry in old}
    merged = polib.POFile(wrapwidth=100)
    merged.metadata = old.metadata
    merged.header = old.header
    for key, files in sorted(texts().items(), key=lambda item: (item[1], item[0])):
        entry = known.get(key) or new_entry(key)
        entry.occurrences = [(file, "") for file in files]
        entry.flags = ["python-format"] if "%(" in "".join(key) or "%s" in "".join(key) else []
        merged.append(entry)
    merged.save(str(path))
    merged.save_as_mofile(str(path.with_suffix(".mo")))
    return [key_of(entry) for entry in merged if not entry.translated()]


def new_entry(key: Key) -> polib.POEntry:
    """Return an entry without a translation."""
    context, one, many = key
    plural = {"msgid_plural": many, "msgstr_plural": {0: "", 1: ""}} if many else {}
    return polib.POEntry(msgctxt=context or None, msgid=one, **plural)


def main() -> int:
    """Merge and compile every catalogue; fail when texts lack a translation."""
    lacking = {language: merge(language) for language in LANGUAGES}
    for language, keys in lacking.items():
        for _, text, _ in keys:
            print(f"{language}: no translation of {text!r}")
    return 1 if any(lacking.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
