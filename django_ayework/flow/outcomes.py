"""From a plan to what is written: results and contributions as text, new works as rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

from django_ayework.conf import get_settings
from django_ayework.define.plans import Plan
from django_ayework.define.registry import AnyWorkType, registry
from django_ayework.define.requests import WorkRequest
from django_ayework.flow.births import Birth, Family, all_born, born, likeness
from django_ayework.flow.drafts import Drafts, plain_kinds
from django_ayework.flow.outputs import outputs_of
from django_ayework.flow.payloads import codec_of, encode_result
from django_ayework.flow.settle import Success
from django_ayework.heartbeat import project_code
from django_ayework.rules.folding import Contribution, GroupValue, fold
from django_ayework.store.clock import clock
from django_ayework.store.rows import WorkRow

#: From how many new works on it is worthwhile to tell plain ones apart.
MANY = 100

Requests: TypeAlias = Sequence[WorkRequest[Any, Any]]


def success_from(plan: Plan, row: WorkRow) -> Success:
    """Encode a plan: the own result with the type's codec, what the group gets with the settings'.

    Inputs of drafts are left for later. Raises NotEncodable or PayloadTooLarge.
    """
    codec = codec_of(registry.find(row.type))
    result = None if plan.own is None else encode_result(row.type, plan.own.value, codec)
    births, drafts = births_of(plan, row) if plan.works or plan.continuation else ((), None)
    outputs = outputs_of(plan, row)
    differs = any(word.append or word is not plan.own for word in plan.contributions)
    if row.group_id is None and not births and not drafts and not outputs and not differs:
        return Success(result)
    same = plan.own if codec is get_settings().codec else None  # its text is the result's
    contributions = tuple(
        Contribution(result, word.final) if word is same and not word.append else encoded(row.type, word)
        for word in plan.contributions
    )
    return Success(result, contributions, births, outputs, differs, drafts)


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


def births_of(plan: Plan, row: WorkRow) -> tuple[tuple[Birth, ...], Drafts | None]:
    """Return the works that a plan queues, the continuation of the chain last; drafts of very many."""
    now, family = clock.now(), Family.of(row)
    works, drafts = (plan.works, None) if len(plan.works) < MANY else told_apart(plan.works, now, family)
    births = tuple(all_born(works, family, now)) if works else ()
    if plan.continuation is not None:
        births = *births, born(plan.continuation, {}, Family.continuing(row), now)
    return births, drafts


def told_apart(works: Requests, now: datetime, family: Family) -> tuple[Requests, Drafts | None]:
    """Return the works that must be born one by one, and drafts of the others."""
    plain = plain_kinds(works)
    if not plain:
        return works, None
    many: list[WorkRequest[Any, Any]] = []
    others: list[WorkRequest[Any, Any]] = []
    for work in works:
        (many if likeness(work) in plain else others).append(work)
    return others, Drafts(many, now, family)


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
