"""Installs the wheel in empty environments and does the quickstart there, outside the repository.

    python -m tests.install dist/django_ayework-0.2.0-py3-none-any.whl [--quick]

It takes the files and commands from ``docs/tutorial/quickstart.md``. Each row of its table is one
environment: a Python, a Django, a database, the seconds of the installation, and the seconds from its start
to the result of the first work.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.docs import FENCE, ROOT

PAGE = ROOT / "docs" / "tutorial" / "quickstart.md"
ALL = ["5.2", "6.0", "6.1"]
#: Django 6 needs Python 3.12, and only Django 6.1 knows 3.15.
MATRIX = {"3.11": ["5.2"], "3.12": ALL, "3.13": ALL, "3.14": ALL, "3.15": ["6.1"]}
QUICK = {"3.11": ["5.2"], "3.13": ["6.1"]}
DATA = ("py.typed", "templates", "static", "locale/de/LC_MESSAGES/django.mo")
LIMIT = 120


def main() -> int:
    parser = argparse.ArgumentParser(description="Do the quickstart with an installed wheel.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument(
        "--quick", action="store_true", help="only the oldest and the newest pair of versions"
    )
    options = parser.parse_args()
    rows, skipped = [], []
    for version, releases in (QUICK if options.quick else MATRIX).items():
        if (python := interpreter(version)) is None:
            skipped.append(version)
            continue
        for django in releases:
            with tempfile.TemporaryDirectory(prefix="ayework-install-") as folder:
                rows += list(environment(Path(folder), python, version, django, options.wheel.resolve()))
    print("| Python | Django | database | installed in | first work done after |")
    print("|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    for version in skipped:
        print(f"SKIPPED: there is no Python {version} here.")
    print(f"{len(rows)} passed, 0 failed, {len(skipped)} skipped")
    return 0 if rows else 1


def interpreter(version: str) -> str | None:
    """Return a Python of this version that is on the path or of pyenv, if there is one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python3")))]
    for candidate in filter(None, candidates):
        told = run([candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], check=False)
        if told.strip() == version:
            return candidate
    return None


def environment(
    folder: Path, python: str, version: str, django: str, wheel: Path
) -> Iterator[tuple[str, ...]]:
    """Install the wheel in ``folder``, and do the quickstart on each database there."""
    started = time.monotonic()
    run([python, "-m", "venv", str(folder / "venv")])
    installed = str(folder / "venv" / "bin" / "python")
    run([installed, "-m", "pip", "install", "-q", f"{wheel}[postgres]", f"django~={django}.0"])
    seconds = time.monotonic() - started
    check_files(installed, folder)
    for name, url in (("SQLite", ""), ("PostgreSQL", os.environ.get("POSTGRES_URL", DEFAULT_POSTGRES))):
        project = folder / name
        project.mkdir()
        with database(installed, url) as settings:
            again = time.monotonic()
            quickstart(installed, project, settings)
            done = seconds + time.monotonic() - again
            run_tests(installed, project)
        yield version, django, name, f"{seconds:.0f} s", f"{done:.0f} s"


DEFAULT_POSTGRES = "postgres://postgres@127.0.0.1:5432/postgres"


def check_files(python: str, folder: Path) -> None:
    """Raise when the installed package is not that of the environment, or lacks what is no Python."""
    code = "import django_ayework; print(django_ayework.__path__[0])"
    package = Path(run([python, "-c", code], cwd=folder).strip())
    if not package.is_relative_to(folder.resolve()):
        raise SystemExit(f"The package was imported from {package}, not from the environment in {folder}.")
    if missing := [name for name in DATA if not (package / name).exists()]:
        raise SystemExit(f"The wheel lacks {', '.join(missing)}.")
    code = "from importlib.metadata import metadata; print(metadata('django-ayework').get_payload())"
    text = FENCE.sub("", run([python, "-c", code], cwd=folder))
    relative = re.findall(r"\]\((?!https://)[^)]*\)", text)
    if not text.startswith("# ") or relative:
        raise SystemExit(
            f"The description on a package index has links that lead nowhere: {relative or text!r}."
        )


@contextmanager
def database(python: str, url: str) -> Iterator[str]:
    """Make a database of one's own on the server of ``url``, and yield the settings that name it."""
    if not url:
        yield ""
        return
    name, parts = f"ayework_install_{uuid.uuid4().hex[:12]}", urlsplit(url)
    execute = "import psycopg, sys; psycopg.connect(sys.argv[1], autocommit=True).execute(sys.argv[2])"
    server = url.replace("postgres://", "postgresql://", 1)
    run([python, "-c", execute, server, f"CREATE DATABASE {name}"])
    values = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "HOST": parts.hostname,
        "PORT": parts.port or 5432,
        "USER": parts.username,
        "PASSWORD": parts.password or "",
    }
    try:
        yield f"DATABASES = {{'default': {values!r}}}\n"
    finally:
        run([python, "-c", execute, server, f"DROP DATABASE {name} WITH (FORCE)"])


def quickstart(python: str, project: Path, settings: str) -> None:
    """Do sections 1 to 5 of the page, until the work of its shell session has its result."""
    run([python, "-m", "django", "startproject", "config", "."], cwd=project)
    run([python, "manage.py", "startapp", "shop"], cwd=project)
    for path, source in files():
        with (project / path).open("a" if path == "config/settings.py" else "w") as file:
            file.write(source)
    with (project / "config" / "settings.py").open("a") as file:
        file.write(settings)
    run([python, "manage.py", "makemigrations", "-v0", "shop"], cwd=project)
    run([python, "manage.py", "migrate", "-v0"], cwd=project)
    run([python, "manage.py", "check", "--database", "default", "--fail-level", "WARNING"], cwd=project)
    worker = subprocess.Popen(
        [python, "manage.py", "ayework_worker"],
        cwd=project,
        env=env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        source, expected = session()
        found = run([python, "manage.py", "shell", "-c", source], cwd=project)
        if expected not in found:
            raise SystemExit(f"The quickstart shows {expected}, and the shell printed {found!r}.")
    finally:
        worker.terminate()
        log, _ = worker.communicate(timeout=LIMIT)
    if worker.returncode or b"Traceback" in log:
        raise SystemExit(f"The worker ended with status {worker.returncode}:\n{log.decode()}")


def run_tests(python: str, project: Path) -> None:
    run([python, "manage.py", "test", "-v0"], cwd=project)


def files() -> list[tuple[str, str]]:
    """Return the files of the page: those whose block begins with its path."""
    blocks = [match[4] for match in FENCE.finditer(PAGE.read_text()) if match[3] == "python"]
    found = [(re.match(r"# ([\w/]+\.py)", block), block) for block in blocks]
    return [(match[1], block) for match, block in found if match]


def session() -> tuple[str, str]:
    """Return the statements of the page's shell session, the last one printed, and its result."""
    [shell] = [match[4] for match in FENCE.finditer(PAGE.read_text()) if match[3] == "pycon"]
    lines = [line.removeprefix(">>> ") for line in shell.splitlines()]
    *statements, last, expected = lines
    return "\n".join([*statements, f"print(repr({last}))"]), expected


def env() -> dict[str, str]:
    """Return the environment without what names this repository or its settings."""
    ours = ("DJANGO", "DATABASE", "PYTHON", "VIRTUAL_ENV", "AYEWORK")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def run(command: list[str], cwd: Path | None = None, check: bool = True) -> str:
    done = subprocess.run(command, cwd=cwd, env=env(), text=True, capture_output=True, timeout=10 * LIMIT)
    if check and done.returncode:
        shown = " ".join(command)
        raise SystemExit(f"{shown} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
