"""The facts a failure is judged by, gathered from a work's row."""

from __future__ import annotations

import random
from datetime import datetime

from django_ayework.flow.group_books import ContributionFailed
from django_ayework.flow.options import decode_options
from django_ayework.flow.settle import Settlement
from django_ayework.rules.verdicts import Trial, cut_traceback, judge
from django_ayework.store.clock import clock
from django_ayework.store.rows import WorkRow


def trial_of(row: WorkRow, now: datetime) -> Trial:
    """Return the facts that a row's failure is judged by."""
    return Trial(
        attempt=row.attempt,
        policy=decode_options(row.options).retry,
        deadline=row.deadline,
        now=now,
        random=random.random(),  # noqa: S311  # spreads retries, no secret
    )


def as_failure(settlement: Settlement, error: BaseException) -> Settlement:
    """Return an outcome that cannot be written as a failed attempt, so that it shows and is retried."""
    cause = error.cause if isinstance(error, ContributionFailed) else error
    verdict = judge(cause, None, trial_of(settlement.row, clock.now()))
    return settlement._replace(
        ending=verdict, traceback=cut_traceback(f"The outcome could not be written: {error}")
    )
