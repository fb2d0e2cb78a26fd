"""The base classes of the commands, their options, and the log of those that run for long."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import Any, ClassVar, Final

from django.core.checks import ERROR, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper
from django.core.serializers.json import DjangoJSONEncoder
from django.db import Error

from django_ayework.define.requests import GATE_TYPE
from django_ayework.define.types import registry
from django_ayework.documentation import documented, refused_as, text_with_notes
from django_ayework.errors import AyeworkError, did_you_mean
from django_ayework.flow.startup_checks import text_of_trouble
from django_ayework.rules.codec.text import has_surrogates
from django_ayework.rules.diagnosis import Diagnosis, judged
from django_ayework.rules.formatting import counted
from django_ayework.store.database import alias, dialect

#: An option in the help of a command, or in a message of argparse; without its dashes, which are all alike.
OPTION: Final = re.compile(r"--([a-z][\w-]*)")
#: The check whose remedies, the hints of system checks, name an entry already.
SYSTEM_CHECKS: Final = "system_checks"


def refused(code: str, text: str) -> CommandError:
    """Return the error of a command, with a note that leads to its entry in the documentation."""
    return documented(CommandError(text), code, "commands")


class AyeworkCommand(BaseCommand):
    """A command that prints, below its error, the address of the entry in the documentation.

    Options must be written in full: ``--al`` is not taken for ``--all``.
    """

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return a parser that suggests an option for one that does not exist."""
        parser = super().create_parser(prog_name, subcommand, allow_abbrev=False, **kwargs)
        refuse = parser.error

        def error(message: str) -> None:
            options = OPTION.findall(parser.format_help())
            hints = (did_you_mean(name, options) for name in OPTION.findall(message) if name not in options)
            hint = next((each.replace("'", "'--", 1) for each in hints if each), "")
            refuse(f"{message}.{hint}" if hint else message)

        parser.error = error  # type: ignore[method-assign]  # Django makes the parser
        return parser

    def get_check_kwargs(self, options: dict[str, Any]) -> Any:
        """Return what Django calls its system checks with: no databases, so that none has to answer.

        Otherwise Django 6 asks every database in its checks of fields, also one that a worker waits for.
        """
        arguments: Any = super().get_check_kwargs(options)
        return {**arguments, "databases": []}

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command."""
        if self.is_whole_process and None in (sys.stdin, sys.stdout, sys.stderr):
            open_missing_streams()
            self.stdout, self.stderr = OutputWrapper(sys.stdout), OutputWrapper(sys.stderr)
        if self.is_whole_process and isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # letters that it does not have, as stderr does
        try:
            refuse_undecodable(options)
            return self.run(*args, **options)
        except CommandError as error:
            if self.is_whole_process:  # Django prints the message alone
                error.args = (text_with_notes(error),)
            raise
        except KeyboardInterrupt:
            if self.is_whole_process:  # a shell ends its own loop only if the signal has ended the command
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                signal.raise_signal(signal.SIGINT)
            raise

    @property
    def is_whole_process(self) -> bool:
        """Whether the command was given on a command line, so that its process does nothing else."""
        return getattr(self, "_called_from_command_line", False)

    def run(self, *args: Any, **options: Any) -> Any:
        """Run the command as Django does."""
        return super().execute(*args, **options)

    def say(self, text: str, ending: str | None = None) -> None:
        """Print at once; when nobody reads it any more, as after ``| head``, print nothing from now on."""
        try:
            self.stdout.write(text, ending=ending)
            self.stdout.flush()
        except BrokenPipeError:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self.stdout.fileno())


class DatabaseCommand(AyeworkCommand):
    """A command whose error is a sentence if the database is away, refuses, or lacks migrations or a work."""

    def run(self, *args: Any, **options: Any) -> Any:
        """Run the command, with errors of the database, the settings, ids and options as sentences."""
        try:
            return super().run(*args, **options)
        except Error as error:
            if (text := text_of_trouble(error)) is None:
                raise
            raise refused("database-not-usable", text) from error
        except (ImproperlyConfigured, AyeworkError) as refusal:
            raise refused_as(CommandError, refusal) from refusal


class JSONCommand(DatabaseCommand):
    """A command that also answers in JSON."""

    def run(self, *args: Any, **options: Any) -> Any:
        """Run the command. Ctrl-C ends it at once where a driver that waits for a lock would not note it.

        The driver of PostgreSQL cancels its statement, whose locks are free then.
        """
        before = signal.getsignal(signal.SIGINT)
        if before is not signal.default_int_handler or not self.is_whole_process or is_on_postgresql():
            return super().run(*args, **options)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            return super().run(*args, **options)
        finally:
            signal.signal(signal.SIGINT, before)

    def add_arguments(self, parser: CommandParser) -> None:
        """Add ``--json``."""
        parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")

    def answer(self, data: Any, text: str, options: dict[str, Any]) -> None:
        """Print the answer as text, or as JSON."""
        self.say(json.dumps(data, cls=DjangoJSONEncoder) if options["json"] else text)


class WorksCommand(JSONCommand):
    """A command that acts on works: by id, on those of a group, or on all that match an option."""

    #: The act in a message, such as "cancelled"; and the works that are expected to be chosen.
    acted: ClassVar[str]
    expected: ClassVar[str]
    #: The options that choose works by a column.
    matching: ClassVar[tuple[str, ...]]

    def act(self, options: dict[str, Any]) -> tuple[Sequence[str], dict[str, str]]:
        """Act on the chosen works; return the ids of those done, and the refusals by id."""
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        """Act one by one on ids, so that a refusal does not undo the others; then print."""
        self.require_choice(options)
        done, refusals = self.act(options)
        hints = [] if done or refusals else hints_on_type(options["type"])
        text = "\n".join(
            [f"{self.acted.capitalize()} {counted(len(done), 'work')}.", *refusals.values(), *hints]
        )
        self.answer({self.acted: done, "refused": refusals}, text, options)
        if refusals:
            number = len(done) + len(refusals)
            text = f"{len(refusals)} of {number} works could not be {self.acted}."
            raise refused("works-refused", text)

    def require_choice(self, options: dict[str, Any]) -> None:
        """Raise CommandError unless works are chosen in one way: ids, --group, or the other options.

        An unset variable of a shell must not choose more works.
        """
        for name in ("group", "type"):
            if options[name] == "":
                raise refused(
                    "names-missing",
                    f"expected --{name} to have a value, got an empty text; leave it out, or set it.",
                )
        flags = [f"--{name}" for name in self.matching]
        matching = any(options[name] for name in self.matching)
        if options["ids"] and matching:
            raise refused("choice", f"expected either ids or {', '.join(flags)}, got both.")
        if options["group"] and (options["ids"] or matching):
            raise refused("choice", f"expected --group alone, or else ids or {', '.join(flags)}, got both.")
        if not (options["ids"] or options["group"] or matching):
            ways = f"{', '.join(['ids, or --group', *flags[:-1]])} or {flags[-1]}"
            raise refused("choice", f"expected {ways} to say which {self.expected}.")


def is_on_postgresql() -> bool:
    """Tell whether the queue is on PostgreSQL; not if the settings cannot be used, which the command says."""
    with suppress(Exception):
        return dialect().vendor == "postgresql"
    return False


def open_missing_streams() -> None:
    """Open the null device for each standard stream that was closed when the process started.

    The lowest descriptors are free then. A socket or a database file would take them, and be written to.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            stream = open(descriptor, mode, errors="backslashreplace", closefd=False)  # noqa: SIM115  # stays
            setattr(sys, name, stream)


def refuse_undecodable(options: Mapping[str, Any]) -> None:
    """Raise CommandError for a text with bytes that the encoding of the system does not have."""
    for value in options.values():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and has_surrogates(text):
                raise refused("not-text", f"expected arguments to be text in UTF-8, got: {text!r}.")


def listed(options: Mapping[str, Any], option: str) -> tuple[str, ...]:
    """Return the comma-separated names of an option, none if it is not given.

    Raises CommandError for an option without names: an unset variable of a shell must not choose everything.

    >>> listed({"queues": "mail, fax,"}, "queues")
    ('mail', 'fax')
    """
    text = options[option]
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if text is not None and not names:
        raise refused(
            "names-missing",
            f"expected {flag(option)} to have names, separated by commas, got: {text!r}; "
            "leave the option out for the default.",
        )
    return names


def flag(option: str) -> str:
    """Return an option as it is written on the command line."""
    return f"--{option.replace('_', '-')}"


def system_checks() -> list[Diagnosis]:
    """Run the system checks of this app, those of the database included; return what they find."""
    messages = [each for each in run_checks(databases=[alias()]) if str(each.id).startswith("ayework.")]
    return [
        judged(
            SYSTEM_CHECKS,
            f"{message.msg} ({message.id})",
            message.hint or "See the reference of system checks.",
            warns=True,
            fails=message.level >= ERROR,
        )
        for message in messages
    ] or [judged(SYSTEM_CHECKS, "The system checks of django_ayework find nothing.")]


def hints_on_type(type: str | None) -> list[str]:
    """Return a hint on a type without works, if it is not registered."""
    known = [*registry.names(), GATE_TYPE]
    if type is None or type in known:
        return []
    return [f"No type of work is called {type!r} here.{did_you_mean(type, known)}"]


class NameFilter(logging.Filter):
    """Adds the name of the worker to the front of each message."""

    def __init__(self, worker: str) -> None:
        super().__init__()
        self.worker = worker

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the name; every record passes."""
        name = self.worker.replace("%", "%%") if record.args else self.worker
        record.msg = f"[{name}] {record.msg}"
        return True


@contextmanager
def log_named(worker: str) -> Iterator[None]:
    """Add the name of a worker, if it has one, to the engine's log lines within the block."""
    logger = logging.getLogger("django_ayework")
    before = logger.filters[:]
    others = [each for each in before if not isinstance(each, NameFilter)]
    logger.filters = [*others, *([NameFilter(worker)] if worker else [])]
    try:
        yield
    finally:
        logger.filters = before


def show_engine_log(verbosity: int) -> None:
    """Show the engine's log on the terminal unless the project has configured logging for it."""
    logger = logging.getLogger("django_ayework")
    if not logger.hasHandlers():
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    if logger.level == logging.NOTSET and verbosity > 0:
        logger.setLevel(logging.INFO)
