"""As much of a browser as the pages of the tutorial need: links, forms and cookies, without scripts."""

from __future__ import annotations

import http.cookiejar
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from django.core.files.uploadedfile import SimpleUploadedFile
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart

from tests.processes import PATIENCE, eventually

BLOCKS = ("p", "li", "td", "th", "h1", "h2", "h3", "br", "div", "option", "dt", "dd")


class Browser:
    """A reader's browser on one site, and the page that it is at."""

    def __init__(self, url: str) -> None:
        self.url, self.at, self.html = url, "/", ""
        self.cookies = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))
        self.filled: dict[str, str | Path] = {}

    def obey(self, verb: str, rest: str, folder: Path) -> None:
        """Do what a line of a page says; files are in a folder."""
        match verb:
            case "open" | "follow" | "press":
                getattr(self, verb)(rest)
            case "fill":
                name, _, value = rest.partition("=")
                self.filled[name] = folder / value[1:] if value.startswith("@") else value
            case "see":
                assert rest in self.words(), f"{self.at} does not show {rest!r}:\n{self.words()}"
            case "await":
                self.wait_for(rest)
            case _:
                raise AssertionError(f"A browser cannot {verb} {rest}")

    def open(self, path: str, data: dict[str, object] | None = None) -> Browser:
        address = urllib.parse.urljoin(self.url + self.at, path)
        body = encode_multipart(BOUNDARY, data) if data is not None else None
        request = urllib.request.Request(address, body, {"Content-Type": MULTIPART_CONTENT} if body else {})
        try:
            with self.opener.open(request, timeout=PATIENCE) as answer:
                self.at, self.html = answer.url.removeprefix(self.url), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode()[:3000]
                raise AssertionError(f"{address} answers {error.code}: {said}") from None
        return self

    def wait_for(self, text: str) -> None:
        """Open the page again until it shows a text."""
        try:
            eventually(lambda: text in self.open(self.at).words())
        except AssertionError:
            raise AssertionError(f"{self.at} never shows {text!r}:\n{self.words()}") from None

    def follow(self, text: str) -> None:
        """Open what a link leads to: a link of these words, or to this path, in which ``…`` is any name."""
        path = re.escape(text).replace("…", "[^/]+")
        links = [at for at, words in self.read().links if words == text or re.fullmatch(path, at)]
        assert links, f"{self.at} has no link {text!r}, only {[words for _, words in self.read().links]}"
        self.open(links[0])

    def press(self, text: str) -> None:
        """Submit the form of a button, with what was filled in; ``A or B`` is the name in two versions."""
        forms, words = self.read().forms, text.split(" or ")
        found = [(form, name) for form in forms for name in words if name in form.buttons]
        assert found, f"{self.at} has no button {text!r}, only {[form.buttons for form in forms]}"
        (form, pressed), filled = found[0], self.filled
        assert (unknown := set(filled) - set(form.names)) == set(), f"{self.at} has no field {unknown}"
        self.filled = {}
        sent = {name: upload(value) if isinstance(value, Path) else value for name, value in filled.items()}
        button = {name: value for name, value in [form.buttons[pressed]] if name}
        self.open(form.action or self.at, form.inputs | sent | button)

    def words(self) -> str:
        return self.read().since(0)

    def read(self) -> Reading:
        reading = Reading()
        reading.feed(self.html)
        return reading


def upload(path: Path) -> SimpleUploadedFile:
    """Return a file as a form sends it."""
    return SimpleUploadedFile(path.name, path.read_bytes())


@dataclass
class Form:
    """A form: where it goes, what it sends, and its buttons."""

    action: str
    inputs: dict[str, object] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    buttons: dict[str, tuple[str, str]] = field(default_factory=dict)


class Reading(HTMLParser):
    """The words, links and forms of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.links: list[tuple[str, str]] = []
        self.forms: list[Form] = []
        self.inside: list[Form] = []
        self.silent = False
        self.target: tuple[str, int] | None = None
        self.button: tuple[dict[str, str], int] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.silent = self.silent or tag in ("script", "style")
        if tag == "a" and "href" in given:
            self.target = given["href"], len(self.words)
        elif tag == "form":
            self.forms.append(Form(given.get("action", "")))
            self.inside.append(self.forms[-1])
        elif tag == "button":
            self.button = given, len(self.words)
        elif tag in ("input", "select", "textarea") and self.inside:
            self.enter(self.inside[-1], tag, given)
        elif tag in BLOCKS:
            self.words.append(" ")

    def enter(self, form: Form, tag: str, given: dict[str, str]) -> None:
        kind, name = given.get("type", "text"), given.get("name", "")
        form.names.append(name)
        if kind == "submit":
            form.buttons[given.get("value", "")] = name, given.get("value", "")
        elif name and tag == "input" and (kind not in ("checkbox", "radio", "file") or "checked" in given):
            form.inputs[name] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        self.silent = self.silent and tag not in ("script", "style")
        if tag == "a" and self.target:
            address, start = self.target
            self.links.append((address, self.since(start)))
            self.target = None
        elif tag == "button" and self.button and self.inside:
            given, start = self.button
            self.inside[-1].buttons[self.since(start)] = given.get("name", ""), given.get("value", "")
            self.button = None
        elif tag == "form" and self.inside:
            self.inside.pop()

    def since(self, start: int) -> str:
        """Return the words from a place on."""
        return " ".join("".join(self.words[start:]).split())

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.words.append(data)
