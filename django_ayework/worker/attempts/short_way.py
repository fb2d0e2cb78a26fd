"""The short way through an attempt, for handlers that are shown nothing of the engine and return a value.

Most handlers are like that, and for those there is no context to make, and no transaction to look after.
Whatever turns up that is not as expected goes the whole way, see ``attempt``.
"""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from django_ayework.conf import get_settings
from django_ayework.define.events import Kind
from django_ayework.define.plans import SAYINGS, is_list_of_works
from django_ayework.define.registry import AnyWorkType, registry
from django_ayework.flow.events import is_heard
from django_ayework.flow.outcomes import success_of_value
from django_ayework.flow.redaction import read_input
from django_ayework.flow.services import EngineServices
from django_ayework.flow.settle import Settlement
from django_ayework.logs import AttemptFacts, attempt_logged
from django_ayework.worker.attempts.attempt import Opened, ended_by, run
from django_ayework.worker.attempts.delivery import Delivery
from django_ayework.worker.attempts.outcome import require_none_dropped

#: What a handler may return that is no value to be stored.
NO_VALUES = (*SAYINGS, CoroutineType)


def run_shortest(delivery: Delivery, services: EngineServices) -> Settlement | None:
    """Run an attempt in this thread, the short way if that can be; see :func:`attempt.run`."""
    work_type = registry.find(delivery.row.type)
    if work_type is None or not may_go_short(delivery, work_type):
        return run(delivery, services)
    try:
        arguments = work_type.arguments(read_input(delivery.row, work_type))
    except BaseException:
        return run(delivery, services)
    return run_short(delivery, work_type, arguments, services)


def may_go_short(delivery: Delivery, work_type: AnyWorkType) -> bool:
    """Tell whether nobody but the handler has a part in the attempt, and that only sees its arguments."""
    settings = get_settings()
    return (
        work_type.is_shown_nothing
        and delivery.row.deadline is None
        and not settings.middleware
        and settings.log_context is None
        and not is_heard(Kind.STARTED, work_type.name)
    )


def run_short(
    delivery: Delivery, work_type: AnyWorkType, arguments: dict[str, Any], services: EngineServices
) -> Settlement | None:
    """Call the handler and conclude from what it returned; what is no value takes a context to judge."""
    row = delivery.row
    with attempt_logged(AttemptFacts(row.id, row.type, row.attempt, row.group)):
        try:
            returned = work_type.handler(**arguments)
            require_none_dropped(work_type, row)
            if isinstance(returned, NO_VALUES) or is_list_of_works(returned):
                attempt = Opened.of(delivery, work_type, arguments, services)
                return attempt.stages.conclude(attempt.context, returned)
            return Settlement(row, success_of_value(returned, row, work_type))
        except BaseException as error:
            return ended_by(Opened.of(delivery, work_type, arguments, services), error)
