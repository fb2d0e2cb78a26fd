"""The comparison of two versions names what is lost, doubled or run by the wrong one; it chooses a commit."""

import shutil
import subprocess

import pytest

from tests.upgrade.__main__ import Skipped, check_migrations, commit_of
from tests.upgrade.checking import GATE, Queued, Report, findings

QUEUED = [Queued("a", "plain", 7), Queued("b", "fan_out", 3, frozenset({"new"}))]
PLAIN, FAN = ("a", "upgraded.plain", "success", 2), ("b", "upgraded.fan_out", "success", 1)
WORKS = [PLAIN, FAN, ("gate", GATE, "success", 0)]
RUNS = [("a", 1, "old"), ("a", 2, "old"), ("b", 1, "new")]
SWAPPED = [("a", 1, "new"), ("a", 2, "new"), ("b", 1, "old")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, []),
        ({"works": WORKS[1:]}, ["plain a was queued and is not there", "a ran and is not there"]),
        ({"values": (8, 3)}, ["plain a: expected 7, got 8"]),
        ({"runs": [*RUNS, ("b", 1, "new")]}, ["upgraded.fan_out b has 1 attempts, and ran 2 times"]),
        ({"runs": RUNS[1:]}, ["upgraded.plain a has 2 attempts, and ran 1 times"]),
        ({"works": [PLAIN, FAN, ("gate", GATE, "blocked", 0)]}, [f"{GATE} gate is blocked"]),
        ({"runs": SWAPPED}, ["fan_out b was run by old, which had no worker"]),
        (
            {"queued": QUEUED[:1], "works": WORKS[:1], "runs": RUNS[:2], "values": [7]},
            ["no work was run by the new release"],
        ),
    ],
    ids=[
        *(
            "all is well",
            "a lost work",
            "a wrong value",
            "two runs of one attempt",
            "an attempt without a run",
        ),
        *("no success", "a run by a release without a worker", "a release without a run"),
    ],
)
def test_what_is_wrong_is_named(given, expected):
    given = {"queued": QUEUED, "works": WORKS, "runs": RUNS, "values": (7, 3)} | given
    report = Report(given["works"], given["runs"], given["values"])
    assert list(findings(given["queued"], report, ["old", "new"])) == expected


@pytest.fixture
def repository(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    run(tmp_path, "init", "--quiet")
    commit(tmp_path, "first")
    return tmp_path


def run(folder, *arguments):
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder, message):
    run(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    return run(folder, "rev-parse", "HEAD")


def test_the_newest_tag_that_is_not_head_is_chosen_else_the_commit_before(repository, tmp_path_factory):
    with pytest.raises(Skipped, match="no commit before HEAD"):
        commit_of(repository, "")
    first = run(repository, "rev-parse", "HEAD")
    second = commit(repository, "second")
    assert commit_of(repository, "") == first
    run(repository, "tag", "v0.9.0", first)
    run(repository, "tag", "v0.10.0", second)
    third = commit(repository, "third")
    commit(repository, "fourth")
    assert commit_of(repository, "") == second
    run(repository, "tag", "v0.11.0")
    assert commit_of(repository, "") == second
    assert commit_of(repository, third[:12]) == third
    with pytest.raises(SystemExit, match=r"got: v7\.0"):
        commit_of(repository, "v7.0")
    with pytest.raises(Skipped, match="no checkout of git"):
        commit_of(tmp_path_factory.mktemp("plain"), "")


def test_a_migration_that_was_changed_after_its_release_is_refused_and_a_new_one_is_not(repository):
    migrations = repository / "django_ayework" / "migrations"
    migrations.mkdir(parents=True)
    (migrations / "0001_initial.py").write_text("first\n")
    run(repository, "add", ".")
    old = commit(repository, "a migration")
    (migrations / "0002_more.py").write_text("second\n")
    run(repository, "add", ".")
    check_migrations(repository, old, is_release=True)
    (migrations / "0001_initial.py").write_text("changed\n")
    with pytest.raises(SystemExit, match=r"changed after their release: .*0001_initial"):
        check_migrations(repository, old, is_release=True)
    with pytest.raises(Skipped, match="none of both is released"):
        check_migrations(repository, old, is_release=False)
