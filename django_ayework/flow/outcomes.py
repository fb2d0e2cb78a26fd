"""Turns the instruction that a handler returned into the rows and columns to write."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.utils.timezone import localtime

from django_ayework.conf import get_settings
from django_ayework.define.context import NOTHING
from django_ayework.define.plans import Plan
from django_ayework.define.types import AnyWorkType, registry
from django_ayework.documentation import logged
from django_ayework.flow.hooks import fields_about
from django_ayework.flow.new_works import Lineage, NewWork, build_new_work, build_new_works
from django_ayework.flow.payloads import (
    codec_of,
    decode_input,
    decode_options,
    encode_result,
    quotes_for_people,
)
from django_ayework.flow.propagation import headers_for
from django_ayework.flow.settle import Settlement, Success
from django_ayework.flow.unit_of_work import ContributionFailed
from django_ayework.logs import logger
from django_ayework.propagation import Queueing, propagators
from django_ayework.rules.conditions import Contribution
from django_ayework.rules.formatting import class_path, cut_traceback, error_text, if_renamed, parked_since
from django_ayework.rules.identity import Unit, units_of
from django_ayework.rules.retry import AttemptDecision, RetryInput, decide_failure, has_expired
from django_ayework.store.database import clock, project_code_within
from django_ayework.store.rows import WorkRow

# Chaining by data: what a work has output becomes works of the type that its own names with ``then=``.

#: Dropped parts of one output that a message names.
MOST_NAMED = 10


def outputs_of(plan: Plan, row: WorkRow, work_type: AnyWorkType | None) -> tuple[NewWork, ...]:
    """Return the works that a success outputs.

    An output never fails the work that gave it. Dropped parts are logged.
    """
    then = work_type.settings.then if work_type is not None else None
    if work_type is None or then is None:
        if plan.output is not NOTHING:
            logger.warning(
                "Work %s called ctx.output, but its type %r has no then=. %s",
                row.id,
                row.type,
                logged("output-dropped"),
            )
        return ()
    output = effective_output(plan, row, work_type)
    if output is NOTHING:
        return ()
    target = registry.find(then)
    if target is None:
        logger.warning(
            "The output of work %s is dropped: then=%r names no type known here. %s",
            row.id,
            then,
            logged("output-dropped"),
        )
        return ()
    return new_works_of_output(output, row, target)


def effective_output(plan: Plan, row: WorkRow, work_type: AnyWorkType) -> object:
    """Return the ``output`` of the effective data: of the returned mapping, else given, else of the input.

    A returned mapping without one says that there is none (go-coordinate's rule, behaviour C8).
    """
    if plan.own is not None and isinstance(plan.own.value, Mapping):
        if plan.output is not NOTHING:
            logger.warning(
                "Work %s returned a mapping, so what ctx.output gave does not count. %s",
                row.id,
                logged("output-dropped"),
            )
        return plan.own.value.get("output", NOTHING)
    if plan.output is not NOTHING:
        return plan.output
    try:
        return decode_input(row.input, codec_of(work_type)).get("output", NOTHING)
    except BaseException:  # a codec of the project's own may raise anything
        logger.warning(
            "The input of work %s cannot be read, so it has no output. %s", row.id, logged("output-dropped")
        )
        return NOTHING


def new_works_of_output(output: object, row: WorkRow, target: AnyWorkType) -> tuple[NewWork, ...]:
    """Return the works of an output that can be queued; log the rest."""
    read = units_of(output)
    lineage = Lineage.of(row)
    if propagators and read.units:
        queueing = Queueing(len(read.units), None, target.name, None, lineage.parent_id, continues=False)
        lineage = replace(lineage, headers=headers_for(queueing))
    new_works, dropped = [], list(read.dropped)
    for unit in read.units:
        try:
            new_works.append(new_work_of_unit(unit, lineage, target))
        except BaseException as error:  # options(...) of the target may raise anything
            dropped.append(f"{unit.name!r}: {error_text(error)}")
    if dropped:
        named = "; ".join(dropped[:MOST_NAMED]) + ("; …" if len(dropped) > MOST_NAMED else "")
        named = quotes_for_people(named, row.type, target.name)
        logger.warning(
            "Of the output of work %s (%s) for %s, %d could not be queued: %s %s",
            row.id, row.type, target.name, len(dropped), named, logged("output-dropped"),
        )  # fmt: skip
    return tuple(new_works)


def new_work_of_unit(unit: Unit, lineage: Lineage, target: AnyWorkType) -> NewWork:
    """Return the work of a unit. The unit identifies it, so no other deduplication applies."""
    given: dict[str, Any] = {"unit": unit.name, "dedup": None}
    if unit.priority is not None:
        given["priority"] = unit.priority
    if unit.delay > 0:
        given["delay"] = unit.delay
    return build_new_work(target.build(unit.input), given, lineage, clock.now())


# From a plan to rows: results and contributions as text, new works as rows.


def success_from(plan: Plan, row: WorkRow) -> Success:
    """Encode a plan: the own result with the type's codec, what the group gets with the settings'.

    Raises NotEncodable or PayloadTooLarge.
    """
    work_type = registry.find(row.type)
    codec = codec_of(work_type)
    result = None if plan.own is None else encode_result(row.type, plan.own.value, codec)
    new_works = new_works_of(plan, row) if plan.works or plan.continuation else ()
    outputs = outputs_of(plan, row, work_type)
    differs = any(word.append or word is not plan.own for word in plan.contributions)
    if row.group_id is None and not new_works and not outputs and not differs:
        return Success(result)
    same = plan.own if codec is get_settings().codec else None  # its text is the result's
    contributions = tuple(
        Contribution(result, word.final) if word is same and not word.append else encoded(row.type, word)
        for word in plan.contributions
    )
    return Success(result, contributions, new_works, outputs, differs)


def success_of_value(value: object, row: WorkRow, work_type: AnyWorkType) -> Success:
    """Encode what a handler returned that could say nothing else, of a type without ``then=``.

    It is the result, and the contribution to the group; None is neither. As success_from() of its plan.
    """
    if value is None:
        return Success()
    codec = codec_of(work_type)
    result = encode_result(row.type, value, codec)
    if row.group_id is None:
        return Success(result)
    same = codec is get_settings().codec
    return Success(result, (Contribution(result) if same else encoded(row.type, Contribution(value)),))


def new_works_of(plan: Plan, row: WorkRow) -> tuple[NewWork, ...]:
    """Return the works that a plan queues, the continuation of the chain last."""
    now = clock.now()
    new_works = build_new_works(plan.works, Lineage.of(row), now)
    if plan.continuation is not None:
        new_works.append(build_new_work(plan.continuation, {}, Lineage.continuing(row), now))
    return tuple(new_works)


def encoded(type: str, contribution: Contribution) -> Contribution:
    """Return a contribution whose value is text, and whose ``append`` goes from text to text."""
    codec, given = get_settings().codec, contribution.append
    if given is None:
        return Contribution(encode_result(type, contribution.value, codec), contribution.final)

    def append(existing: str | None) -> str:
        before = None if existing is None else codec.decode(existing)
        with project_code_within():
            after = given(before)
        return encode_result(type, after, codec)

    return Contribution(None, contribution.final, append)


# The facts a failure is judged by, gathered from a work's row.


def retry_input_of(row: WorkRow, now: datetime) -> RetryInput:
    """Return the facts that a row's failure is judged by."""
    return RetryInput(
        attempt=row.attempt,
        policy=decode_options(row.options).retry,
        deadline=row.deadline,
        now=now,
        random=random.random(),  # noqa: S311  # spreads retries, no secret
    )


def as_failure(settlement: Settlement, error: BaseException) -> Settlement:
    """Return an outcome that cannot be written as a failed attempt, so that it shows and is retried."""
    cause = error.cause if isinstance(error, ContributionFailed) else error
    decision = decide_failure(cause, None, retry_input_of(settlement.row, clock.now()))
    return settlement._replace(
        ending=decision,
        traceback=cut_traceback(f"The outcome could not be written: {error}"),
        exception=class_path(cause),
    )


# Works of types that are unknown here.


def unknown_text(type: str) -> str:
    """Return the error of a work of an unknown type."""
    return (
        f"unknown work type: no worker knew {type!r} within AYEWORK['UNKNOWN_TYPE_GRACE']; "
        "install the app that defines it, then retry this work. "
        f"{if_renamed(type, registry.names())} {registry.loaded()}"
    )


def is_to_be_parked(row: WorkRow) -> bool:
    """Tell whether a work of a type unknown here should be offered to other workers before it dies."""
    if registry.find(row.type) is not None:
        return False
    now = clock.now()
    grace = timedelta(seconds=get_settings().unknown_type_grace)
    return not has_expired(row.deadline, now) and now - parked_since(row.error, now) < grace


def log_failure(settlement: Settlement, decision: AttemptDecision) -> None:
    """Log an attempt with its traceback: a warning if the work is tried again, an error if it is dead."""
    row = settlement.row
    attempt = row.attempt if decision.counts else row.attempt - 1
    of = f"attempt {attempt} of {decode_options(row.options).retry.attempts}"
    error = "\n".join(filter(None, (decision.error, settlement.traceback.rstrip())))
    about = fields_about(row)
    if decision.run_at is None:
        logger.error(
            "Work %s (%s) is dead (%s, %s): %s\n%s",
            row.id, row.type, decision.reason, of, error, logged("work-dead"), extra=about,
        )  # fmt: skip
    else:
        again = localtime(decision.run_at).strftime("%Y-%m-%d %H:%M:%S %Z")
        logger.warning(
            "Work %s (%s) failed (%s), and is tried again at %s: %s",
            row.id, row.type, of, again, error, extra=about,
        )  # fmt: skip
