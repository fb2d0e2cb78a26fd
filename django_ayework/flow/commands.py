"""Commands to one worker: be quiet, resume, stop. The database carries them; the next poll obeys."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from django_ayework.errors import InvalidOption, WorkerNotFound
from django_ayework.flow.gates import flush
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.store import attempts
from django_ayework.store.clock import clock
from django_ayework.store.database import atomic, sync_only

Command: TypeAlias = Literal["quiet", "resume", "stop"]


@sync_only
def command_worker(id: str, command: Command) -> None:
    """Send one worker a command, in the caller's transaction; the worker follows it at its next poll.

    - ``"quiet"``: the worker claims no more works and releases prefetched works. Running works go on.
    - ``"resume"``: a quiet worker claims again.
    - ``"stop"``: the worker stops in order, as after SIGTERM. A supervisor does not replace it.

    The last command counts. ``id`` is the id of a ``WorkerProcess``.

    Raises WorkerNotFound for a worker that has stopped or is not known, and InvalidOption for another
    command.

    Example::

        for process in WorkerProcess.objects.filter(host="web-1", stopped_at=None):
            command_worker(process.id, "quiet")
    """
    if command not in get_args(Command):
        raise InvalidOption(f"expected 'quiet', 'resume' or 'stop', got: {command!r}.", code="act-arguments")
    with atomic():
        if not attempts.command_process(id, command):
            raise WorkerNotFound(f"no running worker has the id {id!r}, so none was told to {command}.")
        unit_of_work = UnitOfWork(clock.now())
        unit_of_work.effects.wakes = True  # workers poll at once, so that it is obeyed at once
        flush(unit_of_work)
