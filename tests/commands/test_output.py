"""Commands whose output is not read on or lacks letters, that are interrupted, or given what is no text."""

import os
import signal
import subprocess
import sys
from functools import partial

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import transaction

from django_ayework import enqueue
from django_ayework.management.commands import ayework_prune
from django_ayework.models import Work
from tests.app.works import add
from tests.marks import on_servers
from tests.processes import PATIENCE, ROOT, eventually, unread_pipe
from tests.races.holding import somebody_waits

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


#: Runs a command that is interrupted once its own code runs.
INTERRUPTED = """
import signal
import django
from django.core.management import execute_from_command_line

django.setup()
from django_ayework.management.commands import {command}

{function} = lambda *arguments: signal.raise_signal(signal.SIGINT)
execute_from_command_line(["manage.py", "{command}"])
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


@pytest.mark.parametrize("function", ["prune.prune", "typing.module_text"])
def test_ctrl_c_ends_a_command_as_a_signal_does_and_without_a_traceback(process_env, function):
    """A loop of a shell goes on after a command that ends by itself, whatever its status is."""
    command = function.split(".")[0]
    script = INTERRUPTED.format(command=f"ayework_{command}", function=f"ayework_{function}")
    arguments = [sys.executable, "-c", script]
    ended = subprocess.run(
        arguments, env=process_env, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=PATIENCE
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_ctrl_c_during_a_call_by_other_code_raises_what_python_does(monkeypatch, db):
    monkeypatch.setattr(ayework_prune, "prune", lambda batch: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        call_command("ayework_prune")


@on_servers
def test_ctrl_c_ends_a_command_that_waits_for_a_lock(process_env):
    """The driver of MariaDB waits until it has an answer, and Python calls no handler meanwhile."""
    work = enqueue(add(a=1, b=1))
    command = [sys.executable, "-m", "django", "ayework_cancel", work.id]
    with transaction.atomic():
        Work.objects.select_for_update().get(id=work.id)
        with subprocess.Popen(command, env=process_env, cwd=ROOT) as process:
            try:
                eventually(somebody_waits)
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE) == -signal.SIGINT
            finally:
                process.kill()
    assert Work.objects.get().status == "pending"


@pytest.mark.parametrize(
    "arguments", ["explain \udcff", "cancel some-id \udcff", "worker --burst --queues \udcff"]
)
def test_an_argument_that_is_no_text_is_refused(db, arguments):
    """Python reads bytes that are not UTF-8 as lone surrogates, which no database takes."""
    name, *others = arguments.split()
    with pytest.raises(CommandError, match=r"^expected arguments to be text in UTF-8, got: '\\udcff'"):
        call_command(f"ayework_{name}", *others)
