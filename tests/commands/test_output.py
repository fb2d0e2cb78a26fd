"""Commands whose output cannot be written where it is to go."""

import subprocess
import sys

import pytest

from tests.processes import PATIENCE, ROOT, unread_pipe

COMMANDS = {
    "status": 0,
    "predeploy --json": 0,
    "typing": 0,
    "worker --check": 0,
    "scheduler --once": 0,
    "cancel unknown-id": 1,
}


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(("command", "status"), COMMANDS.items(), ids=COMMANDS)
def test_a_command_ends_as_usual_when_nobody_reads_on(process_env, command, status, unbuffered):
    """As in ``manage.py ayework_status | head -1``."""
    name, *arguments = command.split()
    with unread_pipe() as out:
        ended = subprocess.run(
            [sys.executable, "-m", "django", f"ayework_{name}", *arguments],
            env=process_env | {"PYTHONUNBUFFERED": unbuffered},
            cwd=ROOT,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
    assert (ended.returncode, "BrokenPipe" in ended.stderr) == (status, False), ended.stderr
