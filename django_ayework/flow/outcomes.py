"""From what a handler returned to what is written."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django_ayework.conf import get_settings
from django_ayework.define.context import NOTHING
from django_ayework.define.plans import Plan
from django_ayework.define.registry import AnyWorkType, registry
from django_ayework.flow.new_works import Lineage, NewWork, build_new_work, build_new_works
from django_ayework.flow.payloads import codec_of, decode_input, encode_result, quotes_for_people
from django_ayework.flow.requests import decode_options
from django_ayework.flow.settle import Settlement, Success
from django_ayework.flow.unit_of_work import ContributionFailed
from django_ayework.heartbeat import project_code
from django_ayework.rules.conditions import Contribution, GroupValue, fold
from django_ayework.rules.decisions import RetryInput, cut_traceback, error_text, judge
from django_ayework.rules.outputs import Unit, units_of
from django_ayework.store.clock import clock
from django_ayework.store.rows import WorkRow

# --- outputs ---
# Chaining by data: what a work has output becomes works of the type that its own names with ``then=``.

logger = logging.getLogger("django_ayework")

#: Dropped parts of one output that are told of one by one.
MOST_TOLD = 10


def outputs_of(plan: Plan, row: WorkRow) -> tuple[NewWork, ...]:
    """Return the works that a success outputs.

    Nothing in an output fails the work that gave it; what is dropped is logged.
    """
    work_type = registry.find(row.type)
    then = work_type.settings.then if work_type is not None else None
    if work_type is None or then is None:
        if plan.output is not NOTHING:
            logger.warning("Work %s called ctx.output, but its type %r has no then=.", row.id, row.type)
        return ()
    output = effective_output(plan, row, work_type)
    if output is NOTHING:
        return ()
    target = registry.find(then)
    if target is None:
        logger.warning("The output of work %s is dropped: then=%r names no type known here.", row.id, then)
        return ()
    return new_works_of_output(output, row, target)


def effective_output(plan: Plan, row: WorkRow, work_type: AnyWorkType) -> object:
    """Return the ``output`` of the effective data: of the returned mapping, else given, else of the input.

    A returned mapping without one says that there is none (go-coordinate's rule, behaviour C8).
    """
    if plan.own is not None and isinstance(plan.own.value, Mapping):
        if plan.output is not NOTHING:
            logger.warning("Work %s returned a mapping, so what ctx.output gave does not count.", row.id)
        return plan.own.value.get("output", NOTHING)
    if plan.output is not NOTHING:
        return plan.output
    try:
        return decode_input(row.input, codec_of(work_type)).get("output", NOTHING)
    except BaseException:  # a codec of the project's own may raise anything
        logger.warning("The input of work %s cannot be read, so it has no output.", row.id)
        return NOTHING


def new_works_of_output(output: object, row: WorkRow, target: AnyWorkType) -> tuple[NewWork, ...]:
    """Return the works of an output that can be queued; log the rest."""
    read = units_of(output)
    new_works, dropped = [], list(read.dropped)
    for unit in read.units:
        try:
            new_works.append(new_work_of_unit(unit, row, target))
        except BaseException as error:  # options(...) of the target may raise anything
            dropped.append(f"{unit.name!r}: {error_text(error)}")
    if dropped:
        told = "; ".join(dropped[:MOST_TOLD]) + ("; …" if len(dropped) > MOST_TOLD else "")
        told = quotes_for_people(told, row.type, target.name)
        logger.warning(
            "Of the output of work %s (%s) for %s, %d could not be queued: %s",
            row.id, row.type, target.name, len(dropped), told,
        )  # fmt: skip
    return tuple(new_works)


def new_work_of_unit(unit: Unit, row: WorkRow, target: AnyWorkType) -> NewWork:
    """Return the work of a unit, which is what it is known by: no other deduplication applies."""
    given: dict[str, Any] = {"unit": unit.name, "dedup": None}
    if unit.priority is not None:
        given["priority"] = unit.priority
    if unit.delay > 0:
        given["delay"] = unit.delay
    return build_new_work(target.build(unit.input), given, Lineage.of(row), clock.now())


# --- outcomes ---
# From a plan to what is written: results and contributions as text, new works as rows.


def success_from(plan: Plan, row: WorkRow) -> Success:
    """Encode a plan: the own result with the type's codec, what the group gets with the settings'.

    Raises NotEncodable or PayloadTooLarge.
    """
    codec = codec_of(registry.find(row.type))
    result = None if plan.own is None else encode_result(row.type, plan.own.value, codec)
    new_works = new_works_of(plan, row) if plan.works or plan.continuation else ()
    outputs = outputs_of(plan, row)
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
    codec = get_settings().codec
    if contribution.append is None:
        return Contribution(encode_result(type, contribution.value, codec), contribution.final)

    def append(existing: str | None) -> str:
        before = None if existing is None else codec.decode(existing)
        with project_code():
            after = fold(GroupValue(before, existing is not None), [contribution])
        return encode_result(type, after.value, codec)

    return Contribution(None, contribution.final, append)


# --- trials ---
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
    decision = judge(cause, None, retry_input_of(settlement.row, clock.now()))
    return settlement._replace(
        ending=decision, traceback=cut_traceback(f"The outcome could not be written: {error}")
    )
