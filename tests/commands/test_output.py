"""Commands whose output is not read on or lacks letters, that are interrupted, or given what is no text."""

import os
import signal
import subprocess
import sys
from functools import partial

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_ayework.management.commands import ayework_prune
from tests.processes import PATIENCE, ROOT, unread_pipe

pytestmark = pytest.mark.vendors("sqlite")
#: Runs each command in a process of its own that ends as usual, and tells the exit statuses.
FORKS = """
import os, sys
import django
from django.core.management import execute_from_command_line

django.setup()
for command in sys.argv[1:]:
    if os.fork() == 0:
        execute_from_command_line(["manage.py", *f"ayework_{command}".split()])
        sys.exit()
    print(command, os.waitstatus_to_exitcode(os.wait()[1]), sep=": ", file=sys.stderr)
"""


@pytest.mark.parametrize(("unbuffered", "commands"), [
    ("", {"status": 0, "typing": 0, "worker --check": 0, "cancel unknown-id": 1}),
    ("1", {"predeploy --json": 0, "scheduler --once": 0}),
], ids=["buffered", "unbuffered"])  # fmt: skip
def test_a_command_ends_as_usual_when_nobody_reads_on(process_env, unbuffered, commands):
    """As in ``manage.py ayework_status | head -1``."""
    with unread_pipe() as out:
        ended = subprocess.run(
            [sys.executable, "-c", FORKS, *commands],
            env=process_env | {"PYTHONUNBUFFERED": unbuffered},
            cwd=ROOT,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
    assert "BrokenPipe" not in ended.stderr, ended.stderr
    lines = ended.stderr.splitlines()
    expected = [f"{command}: {status}" for command, status in commands.items()]
    assert [line for line in lines if line.split(": ")[0] in commands] == expected, ended.stderr


@pytest.mark.parametrize("command", ["scheduler --once", "worker --burst", "status"])
def test_a_command_ends_as_usual_without_standard_streams(process_env, command):
    """As in ``ayework_worker <&- >&- 2>&-``, as some daemons are started."""
    arguments = [sys.executable, "-m", "django", *f"ayework_{command}".split()]
    close = partial(os.closerange, 0, 3)
    ended = subprocess.run(arguments, env=process_env, cwd=ROOT, timeout=PATIENCE, preexec_fn=close)
    assert ended.returncode == 0


@pytest.mark.parametrize("command", ["pause --queue Büro", "worker --burst --queues Büro"])
def test_letters_that_the_output_does_not_have_are_escaped(process_env, command):
    """As on Windows, where output to a file has the letters of one language."""
    arguments = [sys.executable, "-m", "django", *f"ayework_{command}".split()]
    env = process_env | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"}
    ended = subprocess.run(
        arguments, env=env, cwd=ROOT, capture_output=True, encoding="ascii", timeout=PATIENCE
    )
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
    assert "B\\xfcro" in ended.stdout


@pytest.mark.parametrize(("is_whole_process", "raised"), [(True, SystemExit), (False, KeyboardInterrupt)])
def test_ctrl_c_ends_a_command_without_a_traceback(monkeypatch, db, is_whole_process, raised):
    """A call by other code raises what Python does."""
    monkeypatch.setattr(ayework_prune, "prune", lambda batch: signal.raise_signal(signal.SIGINT))
    command = ayework_prune.Command()
    command._called_from_command_line = is_whole_process
    with pytest.raises(raised) as end:
        call_command(command)
    assert end.value.args == ((130,) if is_whole_process else ())


@pytest.mark.parametrize(
    "arguments", ["explain \udcff", "cancel some-id \udcff", "worker --burst --queues \udcff"]
)
def test_an_argument_that_is_no_text_is_refused(db, arguments):
    """Python reads bytes that are not UTF-8 as lone surrogates, which no database takes."""
    name, *others = arguments.split()
    with pytest.raises(CommandError, match=r"^expected arguments to be text in UTF-8, got: '\\udcff'"):
        call_command(f"ayework_{name}", *others)
