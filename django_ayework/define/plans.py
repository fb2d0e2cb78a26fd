"""Plans: what the engine makes of the instruction that a handler has returned.

A plan has the works to be queued, and the contributions of the work to its group.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from django_ayework.define.context import NOTHING, Context, invalid
from django_ayework.define.instructions import Continue, Instruction, Queue, Result, nodes_of, requests_of
from django_ayework.define.options import QueueOptions, combined
from django_ayework.define.requests import WorkRequest, dependency
from django_ayework.errors import Abort, Defer, InvalidInstruction, Reschedule
from django_ayework.rules.conditions import Contribution


class Plan(NamedTuple):
    """The effects of a success: the work's own result, contributions to its group, and new works.

    ``output`` is the argument of ``ctx.output``, or NOTHING.
    """

    own: Contribution | None = None
    contributions: tuple[Contribution, ...] = ()
    works: tuple[WorkRequest[Any, Any], ...] = ()
    continuation: WorkRequest[Any, Any] | None = None
    output: Any = NOTHING


EMPTY = Plan()
#: Exceptions of this package that a handler raises, and must not return.
RAISED = (Abort, Defer, Reschedule)
#: Classes of returned values that are no plain values.
MESSAGES = (Instruction, WorkRequest, *RAISED)


def plan_of(returned: object, context: Context, strict: bool) -> Plan:
    """Return the plan of what a handler returned; a plain value counts as ``ctx.result(value)``.

    Raises InvalidInstruction for an instruction of another context, a work or a list of works that was
    returned instead of queued, an exception that was returned instead of raised, and (when ``strict``) an
    instruction that was built but not returned.
    """
    instruction = as_instruction(returned, context)
    require_own(instruction, context, strict)
    plan = EMPTY if instruction is None else compiled(instruction)
    return plan if context.given_output is NOTHING else plan._replace(output=context.given_output)


def is_only_a_value(returned: object, context: Context | None) -> bool:
    """Tell whether the plain value that a handler returned, if any, is its only outcome."""
    if context is not None and (context.built or context.given_output is not NOTHING):
        return False
    return not isinstance(returned, MESSAGES) and not is_list_of_works(returned)


def is_list_of_works(returned: object) -> bool:
    """Tell whether a list begins with a request or an instruction. The rest of a list is not read."""
    if not isinstance(returned, (list, tuple, set)):
        return False
    return isinstance(next(iter(returned), None), (WorkRequest, Instruction))


def root_of(context: Context, since: int = 0) -> Instruction[Any, Any] | None:
    """Return the one instruction built that is part of no other; None when none was built.

    The first ``since`` instructions are left out. Raises InvalidInstruction when there are several.
    """
    built = context.built[since:]
    nested = {id(inner) for node in built for inner in nodes_of(node) if inner is not node}
    roots = [node for node in built if id(node) not in nested]
    if len(roots) > 1:
        raise InvalidInstruction(
            f"expected one instruction for {context.type!r}, got {len(roots)}; "
            "put them into one ctx.queue([...]).",
            id=context.id,
            code="one-instruction-expected",
        )
    return roots[0] if roots else None


@contextmanager
def forgetting(context: Context, before: int) -> Generator[None]:
    """Forget the instructions that were built in the block if it fails."""
    try:
        yield
    except BaseException:
        del context.built[before:]
        raise


def as_instruction(returned: object, context: Context) -> Instruction[Any, Any] | None:
    """Return the instruction, or a plain value as one; None for None."""
    if returned is None or isinstance(returned, Instruction):
        return returned
    if isinstance(returned, RAISED):
        call = f"{type(returned).__name__}(…)"
        problem = f"returned {call}, which has no effect when it is returned; raise it: raise {call}."
        raise invalid(context, problem, code="return-refused")
    if isinstance(returned, WorkRequest):
        what, how = f"the work {returned.type!r} itself", "queue it"
    elif is_list_of_works(returned):
        what, how = f"a {type(returned).__name__} of works", "queue them"
    else:
        return Result(context, returned, final=False, append=None)
    problem = f"returned {what}; return ctx.queue([...]) to {how}, with ctx as the handler's first parameter."
    raise invalid(context, problem, code="return-refused")


def require_own(instruction: Instruction[Any, Any] | None, context: Context, strict: bool) -> None:
    """Raise for an instruction of another context; if ``strict``, also for one that was not returned.

    An instruction that was built but not returned would silently do nothing.
    """
    reached = set()
    for node in () if instruction is None else nodes_of(instruction):
        if node.context is not context:
            raise invalid(
                context,
                "returned an instruction of another context; build it with the ctx that this call was given.",
                code="instruction-of-another-context",
            )
        reached.add(id(node))
    for node in context.built if strict else ():
        if id(node) not in reached:
            raise invalid(
                context,
                f"built {node!r} that was not returned; write return {node!r}, or put it into the list of a "
                "returned ctx.queue(…).",
                code="instruction-not-returned",
            )


def compiled(instruction: Instruction[Any, Any]) -> Plan:
    """Flatten the tree in list order; only a result at its root is the work's own."""
    own = instruction.contribution if isinstance(instruction, Result) else None
    contributions = [node.contribution for node in nodes_of(instruction) if isinstance(node, Result)]
    steps = [with_options(n.work, n.options) for n in nodes_of(instruction) if isinstance(n, Continue)]
    return Plan(own, tuple(contributions), tuple(works_of(instruction)), steps[0] if steps else None)


def works_of(instruction: Instruction[Any, Any]) -> Iterator[WorkRequest[Any, Any]]:
    """Return the works to queue: the items, then one gate for each link of ``.next``."""
    if not isinstance(instruction, Queue):
        return
    for item in instruction.items:
        if isinstance(item, WorkRequest):
            yield with_options(item, instruction.options)
        else:
            yield from works_of(item)
    watched: Iterable[WorkRequest[Any, Any]] = requests_of(instruction.items)
    for link in instruction.links:
        followers = [with_options(work, link.options) for work in link.works]
        yield dependency(watched, followers, link.condition)
        watched = followers


def with_options(work: WorkRequest[Any, Any], options: QueueOptions) -> WorkRequest[Any, Any]:
    """Return the work with these options, which win over those its type computed."""
    return replace(work, options=combined(options, work.options)) if options else work
