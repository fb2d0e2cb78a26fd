"""Propagators in the engine: asking them for headers, and their blocks around attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any

from django_ayework.define.types import AnyWorkType
from django_ayework.documentation import type_error
from django_ayework.flow.hooks import guarded, report
from django_ayework.flow.payloads import arguments_for_people, decode_options, headers_of
from django_ayework.flow.states import gate_of
from django_ayework.propagation import AttemptedWork, AttemptFailure, Queueing, RunningAttempt, propagators
from django_ayework.rules.retry import AttemptDecision
from django_ayework.store.connections import read
from django_ayework.store.dependencies import watched_by
from django_ayework.store.rows import WorkRow, options_of


def headers_for(queueing: Queueing) -> dict[str, str]:
    """Ask every propagator what to store with new works; later ones win where names are the same."""
    headers: dict[str, str] = {}
    for propagator in propagators:
        headers.update(guarded(partial(texts_from, propagator.inject), queueing) or {})
    return headers


def texts_from(inject: Any, queueing: Queueing) -> Mapping[str, str]:
    """Return the headers of one propagator. Raises TypeError unless they are texts."""
    headers = inject(queueing)
    if not isinstance(headers, Mapping) or not all(
        isinstance(text, str) for item in headers.items() for text in item
    ):
        raise type_error(
            "propagator-not-usable",
            f"expected inject() to return a mapping of texts to texts, got: {headers!r}; "
            "convert the values, or return {}.",
        )
    return headers


class AttemptOfRows(RunningAttempt):
    """An attempt of works that were read, and the block of its handler.

    That is the blocks of all propagators, within the block in which log records name the attempt. An error
    of a propagator is reported, and its block is left out. What propagators do not ask for is not made.
    """

    __slots__ = ("_arguments", "_blocks", "_logged", "_rows", "_work_type", "_works")

    def __init__(
        self, rows: Sequence[WorkRow], work_type: AnyWorkType, arguments: Mapping[str, Any], is_batch: bool
    ) -> None:
        self.type = work_type.name
        self.is_batch = is_batch
        self.failures = ()
        self._rows = rows
        self._work_type = work_type
        self._arguments = arguments
        self._works: list[AttemptedWork] | None = None
        self.headers = headers_of(rows[0].options)

    @property
    def works(self) -> Sequence[AttemptedWork]:
        """One work, or those of a batch."""
        if self._works is None:
            first, *others = self._rows
            self._works = [attempted_work(first, self.headers)]
            self._works += [attempted_work(row, headers_of(row.options)) for row in others]
        return self._works

    def shown_input(self) -> Any:
        """Return the input by name, without what the type redacts; None for a batch."""
        return None if self.is_batch else arguments_for_people(self._work_type, self._arguments)

    def waited_for(self, limit: int) -> Sequence[Mapping[str, str]]:
        """Return the headers of the first works and chains that the first work had waited for."""
        row, options = self._rows[0], decode_options(self._rows[0].options)
        candidates = (gate_of(row, options), row.id if options.blocked else None)
        waiters = [waiter for waiter in candidates if waiter is not None]
        return read(partial(headers_watched_by, waiters, limit)) if waiters else []

    def attach(self, logged: AbstractContextManager[None]) -> bool:
        """Ask the propagators for their blocks, to enter within ``logged``; return whether there are any."""
        self._logged = logged
        self._blocks: list[AbstractContextManager[Any]] = []
        for propagator in propagators:
            try:
                if (block := propagator.attach(self)) is not None:
                    self._blocks.append(block)
            except BaseException as error:
                report(error, "hook", f"the propagator {propagator!r} could not be attached")
        return bool(self._blocks)

    def failed(self, id: str, error: BaseException, decision: AttemptDecision | None) -> None:
        """Note that the attempt of one of the works did not succeed."""
        outcome, reason = (decision.outcome, decision.reason) if decision is not None else (None, None)
        work = next(work for work in self.works if work.id == id)
        self.failures = (*self.failures, AttemptFailure(work, error, outcome, str(reason or "")))

    def __enter__(self) -> None:
        self._logged.__enter__()
        for block in self._blocks:
            try:
                block.__enter__()
            except BaseException as error:
                report(error, "hook", f"the block of a propagator ({block!r}) could not be entered")
                self._blocks = [other for other in self._blocks if other is not block]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not self.failures:
            self.failed(self.works[0].id, error, None)
        while self._blocks:  # a block may know this object, and no cycle of references is to stay behind
            block = self._blocks.pop()
            try:
                block.__exit__(kind, error, trace)
            except BaseException as raised:
                if raised is not error:
                    report(raised, "hook", f"the block of a propagator ({block!r}) could not be left")
        self._logged.__exit__(kind, error, trace)


def attempted_work(row: WorkRow, headers: Mapping[str, str]) -> AttemptedWork:
    """Return the description of one work for propagators."""
    attempts = decode_options(row.options).retry.attempts
    return AttemptedWork(row.id, row.type, row.queue, row.group, row.attempt, attempts, row.worker, headers)


def headers_watched_by(waiters: Sequence[str], limit: int) -> list[Mapping[str, str]]:
    """Return the headers of the first works and chains that these watch, of those that have any."""
    ids = [id for waiter in waiters for id, _ in watched_by(waiter, limit)]
    return [headers for text in options_of(ids[:limit]) if (headers := headers_of(text))]
