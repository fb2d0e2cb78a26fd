"""Doing the tutorial: writes its files, runs its commands and sessions, fills its forms, and compares.

The pages of ``docs/tutorial/`` say what is to be done. A runner goes through a page from top to bottom:

- A block whose first line is a comment with a path is a file. ``# shop/works.py`` alone is the whole file.
  After a colon, ``at the top`` and ``at the end`` add to it; ``in place of NAME`` replaces a function of it.
- A ``console`` block is run line by line. Output that the page shows must come. ``ayework_worker`` and
  ``runserver`` run on; what the page shows below them must come in their log.
- A ``pycon`` block is run in a shell of the project, and its output is compared.
- A ``text`` block must come in the log of the worker.
- A comment of HTML says what else happens, one thing in each line; see ``Tutorial.heed``.

Ids, moments and spans differ from run to run, and are not compared; nor are links to explanations. ``…``
stands for any text, and in a line of its own for any lines.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs import FENCE, ROOT
from tests.documentation.reader import Browser
from tests.install import env
from tests.processes import eventually

PAGES = sorted((ROOT / "docs" / "tutorial").glob("[0-9]-*.md"))
STEP = re.compile(FENCE.pattern + r"|^<!--\s(?P<comment>.*?)-->$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:#|<!--) (?P<path>[\w./-]+\.\w+)(?:: (?P<how>[\w. ]+?))?(?: -->)?\n")
COMMAND = re.compile(r"^\$ (.+(?:\\\n.+)*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
EXAMPLE = re.compile(r"(^>>> .*\n(?:\.\.\. ?.*\n)*)((?:(?!>>> ).*\n?)*)", re.MULTILINE)
LIMIT = 60
#: Commands that the machine has been prepared for, and the shell whose session is a block of its own.
DONE_BEFORE = ("python -m venv", "python -m pip", "python manage.py shell")
SERVICES = {"python manage.py ayework_worker --reload": "worker", "python manage.py runserver": "site"}
#: Commands after which a worker takes a work, or that look for one.
NEEDS_WORKER = ("python manage.py ayework_retry", "python manage.py ayework_status")
VARYING = (
    (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?", "MOMENT"),
    (r"\b\d+(?:\.\d+)? (?:ms|s|min|h|d)\b(?: \d+ (?:ms|s|min|h)\b)*", "SPAN"),
    (r"\b\d+\.\d+s\b", "SPAN"),
    (r"(?m)^See https://\S+\n?", ""),
)
SHELL = """
import code, contextlib, io, json, os
found, console = [], code.InteractiveConsole()
for source in json.loads(os.environ["SESSION"]):
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        console.runsource(source, "<console>", "single")
    found.append(output.getvalue())
print(json.dumps(found))
"""


class Tutorial:
    """A reader in a folder, who does page after page."""

    def __init__(self, folder: Path, camera: Callable[..., None] | None = None):
        self.folder, self.camera = folder, camera
        self.site = Browser(f"http://127.0.0.1:{free_port()}")
        self.services: dict[str, subprocess.Popen[bytes]] = {}
        self.wanted: dict[str, str] = {}
        self.stale: set[str] = set()
        self.read = 0
        library = folder.parent / "library"
        library.mkdir(exist_ok=True)
        if not (library / "django_ayework").exists():
            (library / "django_ayework").symlink_to(ROOT / "django_ayework")
        self.env = env() | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(library),
            "PYTHONUNBUFFERED": "1",
            "DJANGO_SUPERUSER_PASSWORD": "tutorial",
        }

    def do(self, page: Path) -> None:
        """Do a page; what differs from it is an ``AssertionError`` that names its line."""
        text = page.read_text()
        for step in STEP.finditer(text):
            line = text.count("\n", 0, step.start()) + 1
            try:
                self.take(step)
            except Exception as error:
                error.add_note(f"{page}:{line}")
                raise

    def take(self, step: re.Match[str]) -> None:
        if step["comment"] is not None:
            self.heed(step["comment"])
        elif file := FILE.match(step[4]):
            self.write(file["path"], file["how"], step[4])
        elif step[3] == "console":
            for command, shown in COMMAND.findall(step[4]):
                self.run(command.replace("\\\n", ""), shown)
        elif step[3] == "pycon":
            self.shell(step[4])
        elif step[3] == "text":
            self.log_says("worker", step[4])

    # -- files --

    def write(self, path: str, how: str | None, block: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        new, before = block.split("\n", 1)[1], file.read_text() if how else ""
        match (how or "").split():
            case []:
                text = block
            case ["at", "the", "end"]:
                text = before + new
            case ["at", "the", "top"]:
                text = new + before
            case ["in", "place", "of", name]:
                text = replaced(before, name, new)
            case _:
                raise AssertionError(f"No way to change a file: {how}")
        file.write_text(text)
        self.stale |= set(self.wanted)

    # -- commands --

    def run(self, command: str, shown: str) -> None:
        """Run a command; its status must be 0, unless the page shows its status."""
        if command.startswith(DONE_BEFORE):
            return
        if service := SERVICES.get(command):
            self.wanted[service] = command.removesuffix(" --reload")
            self.start(service)
            self.log_says(service, shown)
            return
        if command.startswith(NEEDS_WORKER):
            self.restart("worker")
        if "createsuperuser" in command:
            command += " --noinput"
        done = self.ran("bash", "-c", command, stderr=subprocess.STDOUT)
        said = done.stdout
        assert done.returncode == 0, f"$ {command}\n{said}"
        if shown:
            assert matches(shown, said), differing(f"$ {command}", shown, said)

    def ran(
        self, *command: str, stderr: int = subprocess.PIPE, **env: str
    ) -> subprocess.CompletedProcess[str]:
        options = {"cwd": self.folder, "env": self.env | env, "timeout": LIMIT}
        return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=stderr, **options)

    def shell(self, block: str) -> None:
        self.restart("worker")
        examples = [
            ("\n".join(line[4:] for line in source.splitlines()), shown)
            for source, shown in EXAMPLE.findall(block)
        ]
        sources = [source + "\n" * ("\n" in source) for source, _ in examples]
        done = self.ran(sys.executable, "manage.py", "shell", "-v0", "-c", SHELL, SESSION=json.dumps(sources))
        assert done.returncode == 0, done.stderr
        for (source, shown), said in zip(examples, json.loads(done.stdout.splitlines()[-1]), strict=True):
            assert matches(shown, said), differing(f">>> {source}", shown, said)

    # -- processes that run on --

    def start(self, service: str) -> None:
        command = shlex.split(self.wanted[service])
        if service == "site":
            command += ["--noreload", self.site.url.removeprefix("http://")]
        self.read = 0 if service == "worker" else self.read
        command = [sys.executable, *command[1:]]
        with self.log(service).open("wb") as log:
            options = {"cwd": self.folder, "env": self.env, "stdout": log, "stderr": subprocess.STDOUT}
            self.services[service] = subprocess.Popen(command, **options)
        if service == "site":
            eventually(self.answers)

    def answers(self) -> bool:
        assert self.services["site"].poll() is None, self.log("site").read_text()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", int(self.site.url.rpartition(":")[2]))) == 0

    def restart(self, *services: str) -> None:
        """Start services anew if code has changed, as they do by themselves, only sooner."""
        for service in self.stale.intersection(services):
            self.stop(service)
            self.start(service)
            self.stale.remove(service)

    def stop(self, service: str) -> None:
        """Stop a service in order; it is killed if that is of no use."""
        process = self.services.pop(service)
        eventually(lambda: self.log(service).read_bytes() or process.poll() is not None)  # it heeds signals
        process.terminate()
        try:
            process.wait(LIMIT)
        finally:
            process.kill()
            process.wait()
        if service == "worker":
            assert process.returncode == 0, self.log(service).read_text()

    def close(self) -> None:
        for process in self.services.values():
            process.kill()
            process.wait()
        self.services.clear()

    def log(self, service: str) -> Path:
        return self.folder.parent / f"{service}.log"

    def log_says(self, service: str, shown: str) -> None:
        """Wait until a log has these lines, below those that were found before."""
        pattern = pattern_of(shown)

        def found() -> bool:
            assert self.services[service].poll() is None, self.log(service).read_text()
            text = masked(self.log(service).read_text(errors="replace"))
            match = re.search(pattern, text[self.read :])
            if match and service == "worker":
                self.read += match.end()
            return match is not None

        try:
            eventually(found, LIMIT / 2)
        except AssertionError:
            text = self.log(service).read_text(errors="replace")
            raise AssertionError(differing(f"the {service}", shown, text)) from None

    # -- what else happens --

    def heed(self, comment: str) -> None:
        """Do what a comment of a page says, line by line.

        ``open PATH``, ``follow LINK``, ``fill NAME=VALUE`` (``@FILE`` for an upload), ``press BUTTON``,
        ``see TEXT`` and ``await TEXT`` (the page is opened again until it is there) are for the browser.
        ``picture NAME SIZE`` takes a picture of its page. ``worker TEXT`` awaits a line in the worker's log.
        """
        for line in comment.strip().splitlines():
            verb, _, rest = line.strip().partition(" ")
            if verb == "worker":
                self.log_says("worker", f"…{rest}…\n")
            elif verb == "picture":
                self.restart("worker", "site")
                if self.camera:
                    self.camera(self.site, *rest.split())
            else:
                self.restart("worker", "site")
                self.site.obey(verb, rest, self.folder)


@contextmanager
def tutorial(folder: Path, camera: Callable[..., None] | None = None) -> Iterator[Tutorial]:
    """Begin the tutorial in a folder; at the end of the block its processes are gone."""
    (folder / "project").mkdir()
    reader = Tutorial(folder / "project", camera)
    try:
        yield reader
        for service in list(reader.services):
            reader.stop(service)
    finally:
        reader.close()


def replaced(source: str, name: str, new: str) -> str:
    """Return a source in which a function or a class is replaced."""
    lines = source.splitlines(keepends=True)
    [node] = [each for each in ast.parse(source).body if getattr(each, "name", "") == name]
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])  # type: ignore[attr-defined]
    return "".join([*lines[: first - 1], new.strip("\n") + "\n", *lines[node.end_lineno :]])


def masked(text: str) -> str:
    """Return a text without what differs from run to run."""
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text)
    return "".join(line.rstrip() + "\n" for line in text.strip("\n").split("\n"))


def pattern_of(shown: str) -> str:
    lines = [re.escape(line).replace("…", r".*") + "\n" for line in masked(shown).splitlines()]
    return "".join(r"(?:.*\n)*?" if line == ".*\n" else line for line in lines)


def matches(shown: str, said: str) -> bool:
    """Return whether a page shows what was said."""
    return re.fullmatch(pattern_of(shown), masked(said)) is not None


def differing(what: str, shown: str, said: str) -> str:
    return f"{what}\n--- the page shows\n{shown}\n--- it says\n{said}"


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])
