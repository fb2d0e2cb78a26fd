"""Runs works with an older commit and the working tree, side by side on one database.

    python -m tests.upgrade              from the newest tag below HEAD, or from the commit before
    python -m tests.upgrade --from v0.2.0

The old code migrates a database, queues works and starts a worker. While that runs, the new code migrates the
database and starts a worker, and both queue works until both have run some. Then each runs alone what the
other has queued. No work may be lost, doubled, or fail. AYEWORK_TEST_REQUIRE and AYEWORK_TEST_ONLY choose
databases as in tests.databases.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from tests.databases import SERVICES, ask_all, names
from tests.docs import ROOT
from tests.upgrade.checking import Queued, Report, findings

PROJECT = Path(__file__).parent / "project"
OLD, NEW = "old", "new"
#: Works of each kind that are queued at once, and how often at most until both workers have run some.
COUNT, ROUNDS = 5, 20
LIMIT = 90


class Skipped(Exception):
    """There is nothing to compare with, and the message says why."""


def main() -> int:
    """Run the scenario on each database; return 1 if anything was wrong, 2 if a database is missing."""
    parser = argparse.ArgumentParser(description="Run an older commit and the working tree side by side.")
    parser.add_argument("--from", dest="revision", default="", help="a commit or a tag")
    given = parser.parse_args().revision
    required = names("AYEWORK_TEST_REQUIRE")
    try:
        commit = commit_of(ROOT, given)
        check_migrations(ROOT, commit, is_release=bool(given or tags(ROOT)))
    except Skipped as reason:
        print(f"SKIPPED: {reason}")
        return 0
    ask_all()
    if missing := [name for name in required if not SERVICES[name].answer]:
        print(f"required, and of no use: {', '.join(missing)}")
        return 2
    wrong = 0
    with checkout(ROOT, commit) as old:
        for service in SERVICES.values():
            if service.runs_suite and service.answer:
                wrong += run_on(service.title, service.url, {OLD: old, NEW: ROOT})
    return 1 if wrong else 0


# --- the older code -------------------------------------------------------------------------------------


def commit_of(repository: Path, given: str) -> str:
    """Return the commit to start from: the given one, the newest tag that is not HEAD, or HEAD~1."""
    if not git(repository, "rev-parse", "--git-dir", check=False):
        raise Skipped("this is no checkout of git, so there is no older commit.")
    if given:
        if commit := resolved(repository, given):
            return commit
        raise SystemExit(f"expected --from to be a commit or a tag of this repository, got: {given}")
    head = resolved(repository, "HEAD")
    for name in [*tags(repository), "HEAD~1"]:
        if (commit := resolved(repository, name)) and commit != head:
            return commit
    raise Skipped("there is no tag, and no commit before HEAD (a shallow clone): name one with FROM=.")


def tags(repository: Path) -> list[str]:
    """Return the tags up to HEAD, the newest version first."""
    return git(repository, "tag", "--list", "--merged", "HEAD", "--sort=-version:refname").split()


def check_migrations(repository: Path, commit: str, is_release: bool) -> None:
    """Raise when a migration of the commit was changed since: databases that have it would not be the same.

    Between two commits of which none is released that may be.
    """
    path = "django_ayework/migrations"
    changed = git(repository, "diff", "--name-only", "--diff-filter=a", commit, "--", path).split()
    if changed and is_release:
        raise SystemExit(f"FAILED: migrations were changed after their release: {', '.join(changed)}")
    if changed:
        raise Skipped(f"{', '.join(changed)} was changed since {commit[:10]}, and none of both is released.")


def resolved(repository: Path, name: str) -> str:
    """Return the hash of a commit, or nothing."""
    return git(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False).strip()


def git(repository: Path, *arguments: str, check: bool = True) -> str:
    """Return what a command of git prints."""
    done = subprocess.run(["git", "-C", str(repository), *arguments], text=True, capture_output=True)
    if check and done.returncode:
        raise SystemExit(f"git {' '.join(arguments)} ended with status {done.returncode}:\n{done.stderr}")
    return "" if done.returncode else done.stdout


@contextmanager
def checkout(repository: Path, commit: str) -> Iterator[Path]:
    """Yield a folder with the files of a commit."""
    with tempfile.TemporaryDirectory(prefix="ayework-upgrade-") as folder:
        place = Path(folder) / "old"
        git(repository, "worktree", "add", "--quiet", "--detach", str(place), commit)
        print(f"from {git(place, 'log', '-1', '--format=%h %s').strip()}", flush=True)
        try:
            yield place
        finally:
            git(repository, "worktree", "remove", "--force", str(place))


# --- databases ------------------------------------------------------------------------------------------


@contextmanager
def database(url: str, folder: Path) -> Iterator[str]:
    """Make a database of its own beside the one of an address; yield its address."""
    if not url:
        yield f"sqlite:///{folder / 'upgrade.sqlite3'}"
        return
    name = f"ayework_upgrade_{uuid.uuid4().hex[:12]}"
    execute(url, f"CREATE DATABASE {name}")
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        execute(url, f"DROP DATABASE {name}")


def execute(url: str, statement: str) -> None:
    """Execute a statement on a server."""
    parts = urlsplit(url)
    if parts.scheme == "mysql":
        import MySQLdb

        login = {"user": unquote(parts.username or ""), "password": unquote(parts.password or "")}
        connection = MySQLdb.connect(host=parts.hostname, port=parts.port or 3306, **login)
        connection.query(statement)
        connection.close()
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as session:
        session.execute(statement)


# --- the scenario ---------------------------------------------------------------------------------------


def run_on(title: str, url: str, code: dict[str, Path]) -> int:
    """Run the scenario on a database; print what was wrong, and return how much."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ayework-upgrade-") as folder:
        place = Path(folder)
        with database(url, place) as own:
            scenario = Scenario(place, own, code)
            try:
                found = scenario.run()
            except SystemExit as error:
                found = [str(error)]
        runs = Counter(release for _, _, release in scenario.report.runs)
        shares = ", ".join(f"{count} runs by the {release} one" for release, count in sorted(runs.items()))
        seconds = time.monotonic() - started
        print(f"{title}: {len(scenario.queued)} works were queued, {shares}; {seconds:.0f} s")
        if found:
            print(*(f"  {each}" for each in found[:30]), sep="\n")
            print(*(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in place.glob("*.log")), sep="\n")
        print(f"{title}: {'FAILED' if found else 'passed'}", flush=True)
    return len(found)


@dataclass
class Scenario:
    """A folder, the address of a database, and the code of each release."""

    folder: Path
    url: str
    code: dict[str, Path]
    queued: list[Queued] = field(default_factory=list)
    report: Report = field(default_factory=lambda: Report((), (), ()))

    def run(self) -> list[str]:
        """Run the scenario; return what was wrong."""
        for release in (OLD, NEW):
            self.check_code(release)
        self.migrate(OLD)
        self.enqueue(OLD)
        with ExitStack() as stack:
            workers = [stack.enter_context(self.worker(OLD))]
            self.tell(OLD, "wait")
            self.migrate(NEW)
            workers.append(stack.enter_context(self.worker(NEW)))
            self.work_together()
            if ended := [worker.args for worker in workers if worker.poll() is not None]:
                raise SystemExit(f"a worker has ended beside the other one: {ended}")
        for runs, queues in ((NEW, OLD), (OLD, NEW)):
            self.enqueue(queues, run_by=runs)
            with self.worker(runs):
                self.tell(NEW, "wait")
        self.report = self.ask_report()
        return list(findings(self.queued, self.report, (OLD, NEW)))

    def work_together(self) -> None:
        """Let both queue works until both have run some since they are two."""
        before = self.runs()
        for _ in range(ROUNDS):
            self.enqueue(OLD)
            self.enqueue(NEW)
            self.tell(NEW, "wait")
            now = self.runs()
            if all(now[release] > before[release] for release in (OLD, NEW)):
                return
        raise SystemExit(f"of two workers beside each other one has run nothing: {before}, then {now}")

    def runs(self) -> Counter[str]:
        """Return how many handlers each release has run."""
        return Counter(json.loads(self.tell(NEW, "releases")))

    def check_code(self, release: str) -> None:
        """Raise when a process of a release imports the package from elsewhere."""
        found = Path(self.python(release, "-c", "import django_ayework as a; print(a.__path__[0])").strip())
        if not found.is_relative_to(self.code[release].resolve()):
            raise SystemExit(f"the {release} release is imported from {found}")

    def migrate(self, release: str) -> None:
        """Apply the migrations that a release has."""
        self.python(release, "-m", "django", "migrate", "--run-syncdb", "--verbosity", "0")

    def enqueue(self, release: str, run_by: str = "") -> None:
        """Queue works of each kind by a process of a release."""
        only = frozenset([run_by] if run_by else [])
        entries = json.loads(self.tell(release, "enqueue", str(COUNT)))
        self.queued += [Queued(**entry, run_by=only) for entry in entries]

    def ask_report(self) -> Report:
        """Return what became of all works."""
        listed = self.folder / "queued.json"
        listed.write_text(json.dumps([{"id": each.id, "kind": each.kind} for each in self.queued]))
        return Report(**json.loads(self.tell(NEW, "report", str(listed))))

    @contextmanager
    def worker(self, release: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker of a release; it must stop in order."""
        command = [sys.executable, "-m", "django", "ayework_worker", "--concurrency", "2", "--name", release]
        path, options = self.folder / f"{release}.log", {"env": self.env(release), "cwd": self.folder}
        with (
            path.open("ab") as log,
            subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, **options) as process,
        ):
            try:
                yield process
                process.terminate()
                status = process.wait(LIMIT)
            finally:
                process.kill()
        if status:
            text = path.read_text()[-3000:]
            raise SystemExit(f"the worker of the {release} release ended with status {status}:\n{text}")

    def tell(self, release: str, *arguments: str) -> str:
        """Let a process of a release do something with the queue; return what it prints."""
        return self.python(release, "-m", "upgraded", *arguments)

    def python(self, release: str, *arguments: str) -> str:
        """Run Python with the code of a release."""
        options: dict[str, Any] = {"env": self.env(release), "cwd": self.folder, "timeout": LIMIT}
        done = subprocess.run([sys.executable, *arguments], text=True, capture_output=True, **options)
        if done.returncode:
            logs = "".join(log.read_text()[-3000:] for log in self.folder.glob("*.log"))
            shown = f"{' '.join(arguments)} of the {release} release ended with status {done.returncode}"
            raise SystemExit(f"{shown}:\n{done.stdout}{done.stderr}\n{logs}")
        return done.stdout

    def env(self, release: str) -> dict[str, str]:
        """Return the environment of a process of a release."""
        path = f"{self.code[release]}{os.pathsep}{PROJECT}"
        ours = {"PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "settings"}
        return os.environ | ours | {"DATABASE_URL": self.url, "RELEASE": release}


if __name__ == "__main__":
    sys.exit(main())
