"""Chaining by data: what a work has output becomes works of the type that its own names with ``then=``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django_ayework.define.context import NOTHING
from django_ayework.define.plans import Plan
from django_ayework.define.registry import AnyWorkType, registry
from django_ayework.flow.births import Birth, Family, born
from django_ayework.flow.payloads import codec_of, decode_input
from django_ayework.flow.redaction import quotes_for_people
from django_ayework.rules.outputs import Unit, units_of
from django_ayework.rules.verdicts import error_text
from django_ayework.store.clock import clock
from django_ayework.store.rows import WorkRow

logger = logging.getLogger("django_ayework")

#: Dropped parts of one output that are told of one by one.
MOST_TOLD = 10


def outputs_of(plan: Plan, row: WorkRow) -> tuple[Birth, ...]:
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
    return births_of_output(output, row, target)


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


def births_of_output(output: object, row: WorkRow, target: AnyWorkType) -> tuple[Birth, ...]:
    """Return the works of an output that can be queued; log the rest."""
    read = units_of(output)
    births, dropped = [], list(read.dropped)
    for unit in read.units:
        try:
            births.append(birth_of_unit(unit, row, target))
        except BaseException as error:  # options(...) of the target may raise anything
            dropped.append(f"{unit.name!r}: {error_text(error)}")
    if dropped:
        told = "; ".join(dropped[:MOST_TOLD]) + ("; …" if len(dropped) > MOST_TOLD else "")
        told = quotes_for_people(told, row.type, target.name)
        logger.warning(
            "Of the output of work %s (%s) for %s, %d could not be queued: %s",
            row.id, row.type, target.name, len(dropped), told,
        )  # fmt: skip
    return tuple(births)


def birth_of_unit(unit: Unit, row: WorkRow, target: AnyWorkType) -> Birth:
    """Return the work of a unit, which is what it is known by: no other deduplication applies."""
    given: dict[str, Any] = {"unit": unit.name, "dedup": None}
    if unit.priority is not None:
        given["priority"] = unit.priority
    if unit.delay > 0:
        given["delay"] = unit.delay
    return born(target.build(unit.input), given, Family.of(row), clock.now())
