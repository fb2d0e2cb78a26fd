"""Several worker processes on one host, kept alive by one that does no work itself."""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

from django.db import connections

from django_ayework.compat import close_pool, this_command
from django_ayework.conf import get_settings
from django_ayework.documentation import logged
from django_ayework.rules.health import (
    Health,
    Phase,
    Signs,
    health_of,
    health_of_all,
    quick_deaths,
    restart_pause,
)
from django_ayework.store.connections import close_all_connections
from django_ayework.worker import bounds
from django_ayework.worker.health import HealthReport, HealthServer
from django_ayework.worker.http import providers
from django_ayework.worker.process import (
    REFUSED,
    SUPERVISED,
    StopSignals,
    WakePipe,
    flush_output,
    freeze_loaded_objects,
    handle_signals,
    leave,
    signals_held_back,
)
from django_ayework.worker.threads import TimelyLogger

#: A process whose log hangs is nevertheless stopped, and looks after its children.
logger = TimelyLogger(logging.getLogger("django_ayework"))


def heartbeat_pipe() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a pipe: the supervisor's, which never blocks, and the child's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs


def signs_from(text: bytes) -> Signs | None:
    """Return signs as they were sent; None for a text that was cut short."""
    try:
        received = json.loads(text)
        return Signs(**{**received, "phase": Phase(received["phase"]), "dead": tuple(received["dead"])})
    except (ValueError, TypeError, KeyError):
        return None


#: The function of a child: it takes its end of the pipe and its number, and returns the exit status.
ChildMain = Callable[[socket.socket, int], int]
#: Closes something of its parent's in a child.
Close = Callable[[], None]


def start_child(number: int, main: ChildMain, parents: Sequence[Close], port: int) -> Child:
    """Start a child, which closes the files of its parent.

    Raises OSError when the system has no room for another process.
    """
    close_connections()
    ours, theirs = heartbeat_pipe()
    try:
        with theirs, signals_held_back():
            if can_fork():
                pid = fork_child(number, main, theirs, [ours.close, *parents])
            else:
                pid = spawn_child(number, theirs, port)
    except BaseException:
        ours.close()
        raise
    return Child(pid, ours)


def can_fork() -> bool:
    """Tell whether a fork is safe: other threads would be cut off in the child, perhaps holding a lock.

    On macOS the system's own libraries start such threads.
    """
    return hasattr(os, "fork") and sys.platform != "darwin" and threading.active_count() == 1


def close_connections() -> None:
    """Close connections and pools that were opened before: parent and child would use the same ones."""
    close_all_connections()
    for connection in connections.all(initialized_only=True):
        close_pool(connection)


def fork_child(number: int, main: ChildMain, theirs: socket.socket, parents: Sequence[Close]) -> int:
    """Fork; in the child, work, and end."""
    flush_output()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for close in parents:
            close()
        status = main(theirs, number)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        leave(status)
    raise AssertionError("unreachable")


def spawn_child(number: int, theirs: socket.socket, port: int) -> int:
    """Run the command that this process runs once more, as a child."""
    theirs.set_inheritable(True)
    arguments = this_command()
    environment = {**os.environ, SUPERVISED: f"{theirs.fileno()},{number},{port}"}
    return os.posix_spawn(arguments[0], arguments, environment, setsigmask=[])


class Child:
    """One worker process, and the supervisor's end of its heartbeat pipe. Times are monotonic seconds."""

    def __init__(self, pid: int, end: socket.socket) -> None:
        self.pid = pid
        self.end = end
        #: Whether the child has closed its end, so that nothing more will come.
        self.is_silent = False
        self.started_at = self.received_at = time.monotonic()
        #: The signs that it sent last.
        self.received = Signs(phase=Phase.STARTING, silent={"starting": 0.0})
        self.exit_code: int | None = None
        self._is_killed = self._is_frozen = False
        self._rest = b""

    def receive(self) -> None:
        """Read all that it has sent; the latest signs count."""
        with suppress(BlockingIOError):
            while not self.is_silent:
                try:
                    received = self.end.recv(65_536)
                except ConnectionError:
                    received = b""
                self._rest += received
                self.is_silent = not received
        *lines, self._rest = self._rest.split(b"\n")
        if (signs := next(filter(None, map(signs_from, reversed(lines))), None)) is not None:
            self.received, self.received_at = signs, time.monotonic()

    def signs(self) -> Signs:
        """Return how it is; a thread that was silent some time ago has been so for longer by now."""
        since = time.monotonic() - self.received_at
        silent = {name: seconds + since for name, seconds in self.received.silent.items()}
        return replace(self.received, pid=self.pid, silent=silent)

    def log_if_frozen(self) -> None:
        """Log it, once, when nothing has come for long from a process that has begun to send signs.

        It is not killed here: a project may have long leases because its handlers hold the interpreter.
        """
        silence = time.monotonic() - self.received_at
        was_frozen, self._is_frozen = self._is_frozen, bool(self.received.worker) and silence > bounds.STALL
        if self._is_frozen and not was_frozen:
            logger.error(
                "Process %d has given no sign of life for %.0f s: a handler holds its interpreter, or it was "
                "suspended. If it does not go on, end it by kill -9 %d, and it is replaced. %s",
                self.pid, silence, self.pid, logged("process-frozen"),
            )  # fmt: skip

    @property
    def retires(self) -> bool:
        """Whether it makes room for another: it has done enough, and claims no more."""
        return self.received.phase in (Phase.RETIRING, Phase.RETIRED) and self.has_worked

    @property
    def has_worked(self) -> bool:
        """Whether it has run anything."""
        return bool(self.received.attempts or self.received.running)

    def stop(self) -> None:
        """Ask it to stop in order."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once; its works are left to their leases."""
        if not self._is_killed:
            self._is_killed = True
            logger.error(
                "Process %d is killed: its works run again once their leases lapse. %s",
                self.pid,
                logged("process-killed"),
            )
            self._send(signal.SIGKILL)

    def has_ended(self) -> bool:
        """Tell whether it has ended; its ``exit_code`` is negative for a signal that killed it."""
        if self.exit_code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # other code of this process has waited for it
                pid, status = self.pid, 0
            if pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
                self.receive()
                self.end.close()  # a child that still runs sees by this that it has no supervisor
        return self.exit_code is not None

    def cause_of_end(self) -> str:
        """Return in words how it ended."""
        if self.received.phase is Phase.STOPPED:
            return "somebody asked it to stop"
        if self.received.phase is Phase.RETIRED:
            return "it retired before it ran anything (is --max-memory too small?)"
        if self.exit_code is None or self.exit_code >= 0:
            return f"exit status {self.exit_code}"
        with suppress(ValueError):
            return signal.Signals(-self.exit_code).name
        return f"signal {-self.exit_code}"

    def _send(self, number: int) -> None:
        if self.exit_code is None:
            os.kill(self.pid, number)


@dataclass(eq=False)
class ProcessSlot:
    """One of the processes that there are to be: one child at work, and perhaps one that retires."""

    number: int
    #: The port of the metrics, for the process that serves them.
    port: int = 0
    children: list[Child] = field(default_factory=list)
    start_at: float = field(default_factory=time.monotonic)
    is_done: bool = False
    #: Whether one of its children was killed, or left works to their leases.
    has_failed: bool = False
    _quick_deaths: int = 0

    def is_vacant(self, now: float) -> bool:
        """Tell whether to start a child: none is at work here, and at most one still retires."""
        is_taken = len(self.children) > 1 or any(not child.retires for child in self.children)
        return not is_taken and not self.is_done and now >= self.start_at

    def start(self, main: ChildMain, parents: list[Close]) -> None:
        """Start a child; put that off if the system has no room for another process."""
        try:
            child = start_child(self.number, main, parents, self.port)
        except OSError as error:
            self._put_off(0.0)
            when = self._when()
            logger.error(
                "Process %d could not be started (%s); next try %s. %s",
                self.number,
                error,
                when,
                logged("process-not-started"),
            )
            return
        self.children.append(child)
        logger.info("Process %d of the supervisor is %d.", self.number, child.pid)

    def note_end(self, child: Child) -> None:
        """Note the end of a child, and when the next one may start."""
        self.children.remove(child)
        self.has_failed |= bool(child.exit_code)
        if child.received.phase is Phase.FINISHED:
            self.is_done = True
        elif child.received.phase is Phase.DISMISSED:
            self.is_done = not self.children  # a successor of it goes on
            logger.info("Process %d was stopped by an operator; it is not replaced.", child.pid)
        elif child.received.phase is Phase.RETIRED and child.has_worked:
            self._quick_deaths = 0
        elif child.retires:  # its successor is there
            cause = child.cause_of_end()
            logger.error(
                "Process %d died while it retired: %s. %s", child.pid, cause, logged("process-ended")
            )
        else:
            lived = time.monotonic() - child.started_at
            self._put_off(lived)
            logger.error(
                "Process %d (number %d) has ended after %.0f s: %s. It is replaced %s. %s",
                child.pid, self.number, lived, child.cause_of_end(), self._when(), logged("process-ended"),
            )  # fmt: skip

    def health(self) -> Health:
        """Judge the child that is at work here."""
        working = [child for child in self.children if not child.retires]
        if working:
            return health_of(working[-1].signs(), bounds.STALL)
        return Health(live=True, ready=False, reasons=(f"it is to be started {self._when()}",))

    def _put_off(self, lived: float) -> None:
        self._quick_deaths = quick_deaths(self._quick_deaths, lived)
        self.start_at = time.monotonic() + restart_pause(self._quick_deaths)

    def _when(self) -> str:
        seconds = self.start_at - time.monotonic()
        return f"in {seconds:.0f} s" if seconds > 0 else "at once"


#: Seconds to sleep at most when nothing happens.
CHECK_EVERY = 1.0


#: The number of the child that runs no works.
EXPORTER = 0


class Supervisor:
    """Runs ``size`` children in one thread, as a process with several cannot safely fork.

    Each child runs ``main``: a worker with a link to this supervisor. The first signal is passed on, the
    second ends all of them at once. With ``port`` there is one more child, whose number is ``EXPORTER``: it
    serves metrics at that port, and its health is not that of the workers.
    """

    def __init__(self, size: int, main: ChildMain, server: HealthServer | None = None, port: int = 0) -> None:
        self.workers = [ProcessSlot(number) for number in range(1, size + 1)]
        self.slots = [*self.workers, *([ProcessSlot(EXPORTER, port)] if port else [])]
        self.main = main
        self.server = server
        self._signals = StopSignals()
        self._stop_by: float | None = None
        self._in_order = True
        self._pipe = WakePipe()
        if server is not None:
            server.report = self.report

    def run(self) -> int:
        """Keep the children alive until asked to stop, or until a burst is over; return the exit status.

        It is 0 when all of them stopped in order, 1 when one did not, refused to start or died in a burst,
        and 128 and the number of the signal after a second signal. A burst does not wait for the works of a
        child that died, whose leases go on.
        """
        with closing(self._pipe):
            self._pipe.wake_on_signals()
            signal.signal(signal.SIGCHLD, lambda number, frame: None)
            handle_signals(lambda number, frame: self._signals.note(number))
            freeze_loaded_objects()  # before the first fork, so that children share the memory for longer
            while not self._is_over():
                self._stop_children()
                self._fill_slots()
                self._wait()
                self._note_ends()
        if self._signals.is_urgent:
            return 128 + self._signals.numbers[1]
        was_burst = all(slot.is_done for slot in self.workers)
        return int(not self._in_order or (was_burst and any(slot.has_failed for slot in self.workers)))

    def report(self) -> HealthReport:
        """Return how all of them are."""
        signs = [child.signs() for slot in self.workers for child in slot.children]
        if self._stop_by is not None:
            return Health(live=True, ready=False, reasons=("the supervisor is stopping",)), signs
        members = [(f"process {slot.number}", slot.health()) for slot in self.workers if not slot.is_done]
        return health_of_all(members), signs

    def _is_over(self) -> bool:
        if self._children():
            return False
        return self._stop_by is not None or all(slot.is_done for slot in self.workers)

    def _stop_children(self) -> None:
        """Stop the children in order, then those that are left by force: at a second signal, or too late.

        When all workers have ended their bursts, the child that serves metrics may be left.
        """
        are_done = all(slot.is_done for slot in self.workers)
        if self._stop_by is None and (self._signals.numbers or are_done):
            self._stop()
        if self._stop_by is not None and (self._signals.is_urgent or time.monotonic() > self._stop_by):
            for child in self._children():
                child.kill()

    def _stop(self) -> None:
        """Ask all children to stop in order."""
        grace = get_settings().shutdown_grace + bounds.FAREWELL + bounds.CHILDREN
        self._stop_by = time.monotonic() + grace
        logger.info("The supervisor stops its processes (%d).", len(self._children()))
        for child in self._children():
            child.stop()

    def _fill_slots(self) -> None:
        """Start the children that are missing."""
        if self._stop_by is not None:
            return
        for slot in self.slots:
            if slot.is_vacant(time.monotonic()):
                parents = [self._pipe.close, *(child.end.close for child in self._children())]
                if self.server is not None:
                    parents.append(self.server.close)
                slot.start(self.main, parents)

    def _wait(self) -> None:
        """Sleep until a child sends signs, a signal or a request comes, or it is time to act."""
        with selectors.DefaultSelector() as selector:
            for child in self._children():
                if not child.is_silent:
                    selector.register(child.end, selectors.EVENT_READ, child.receive)
            selector.register(self._pipe, selectors.EVENT_READ, self._pipe.clear)
            if self.server is not None:
                selector.register(self.server, selectors.EVENT_READ, self.server.answer)
            now = time.monotonic()
            vacant = [slot.start_at - now for slot in self.slots if not slot.children and not slot.is_done]
            for key, _ in selector.select(max(0.0, min([CHECK_EVERY, *vacant]))):
                key.data()
        for child in self._children():
            child.log_if_frozen()

    def _note_ends(self) -> None:
        """Note which children have ended; one that refuses to work on the database stops all of them."""
        for slot in self.slots:
            for child in [child for child in slot.children if child.has_ended()]:
                if providers.exporter is not None:
                    providers.exporter.forget(child.pid)
                if self._stop_by is None and child.exit_code != REFUSED:
                    slot.note_end(child)
                    continue
                slot.children.remove(child)
                if self._stop_by is None:
                    self._in_order = False
                    self._stop()
                else:
                    self._in_order = self._in_order and child.exit_code in (0, -signal.SIGTERM)

    def _children(self) -> list[Child]:
        return [child for slot in self.slots for child in slot.children]
