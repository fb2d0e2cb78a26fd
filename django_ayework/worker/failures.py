"""The log of attempts that failed: what a worker's terminal shows of works that do not succeed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from django.utils.timezone import localtime

from django_ayework.flow.options import decode_options
from django_ayework.flow.settle import Settlement
from django_ayework.rules.states import Outcome
from django_ayework.rules.verdicts import Verdict

logger = logging.getLogger("django_ayework")


def log_failures(settlements: Iterable[Settlement], moved: Collection[str]) -> None:
    """Log each failed attempt that was written (``moved`` are their works); a deferral is none."""
    for settlement in settlements:
        ending = settlement.ending
        was_written = settlement.row.id in moved
        if was_written and isinstance(ending, Verdict) and ending.outcome is not Outcome.DEFERRED:
            log_failure(settlement, ending)


def log_failure(settlement: Settlement, verdict: Verdict) -> None:
    """Log one with its traceback: a warning if the work is tried again, an error if it is dead."""
    row = settlement.row
    attempt = row.attempt if verdict.counts else row.attempt - 1
    of = f"attempt {attempt} of {decode_options(row.options).retry.attempts}"
    error = "\n".join(filter(None, (verdict.error, settlement.traceback.rstrip())))
    if verdict.run_at is None:
        logger.error("Work %s (%s) is dead (%s, %s): %s", row.id, row.type, verdict.reason, of, error)
    else:
        again = localtime(verdict.run_at).strftime("%Y-%m-%d %H:%M:%S")
        logger.warning(
            "Work %s (%s) failed (%s), and is tried again at %s: %s", row.id, row.type, of, again, error
        )
