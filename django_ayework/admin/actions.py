"""The acts on works that people can choose in the admin: names, permissions, parameters, sentences.

One ``ObjectAction`` serves the button of a page, the action of a list, and bulk actions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_ayework.admin import pages
from django_ayework.admin.buttons import Button
from django_ayework.define.options import MAX_INTEGER, MAX_NAME_LENGTH, check_queue
from django_ayework.errors import InvalidOption
from django_ayework.flow import acts
from django_ayework.flow.acts import ActReport
from django_ayework.models import Work
from django_ayework.models.work import STATUS_LABELS
from django_ayework.rules.states import Status

#: Shown for a work that the user may not act on, by the permission that is missing.
FORBIDDEN = {
    "retry": gettext_lazy(
        "expected a permission to retry the work %(id)s (%(type)s), and you have none for it."
    ),
    "cancel": gettext_lazy(
        "expected a permission to cancel the work %(id)s (%(type)s), and you have none for it."
    ),
    "edit_input": gettext_lazy(
        "expected a permission to edit the input of the work %(id)s (%(type)s), and you have none for it."
    ),
    "change_work": gettext_lazy(
        "expected a permission to change the work %(id)s (%(type)s), and you have none for it."
    ),
    "delete_chains": gettext_lazy(
        "expected a permission to delete the chain of the work %(id)s (%(type)s), and you have none for it."
    ),
}
#: Shown for a work whose chain the user may delete in part only.
FORBIDDEN_IN_PART = gettext_lazy(
    "expected you to be allowed to see and delete all works of the chain of %(id)s (%(type)s), and you are "
    "not allowed to for %(count)d of them; ask somebody who is."
)
HAD_ENDED = ngettext_lazy(
    "%(count)d work had ended or was gone already.",
    "%(count)d works had ended or were gone already.",
    "count",
)
WERE_GONE = ngettext_lazy("%(count)d work was gone already.", "%(count)d works were gone already.", "count")


# Parameters


class ParametersForm(forms.Form):
    """The parameters of an act, which are values of JSON under the names that the act knows."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("prefix", "with")  # the list's own form has fields of these names
        super().__init__(*args, **kwargs)


class PriorityForm(ParametersForm):
    """Another priority."""

    priority = forms.IntegerField(
        label=gettext_lazy("priority"),
        min_value=-MAX_INTEGER,
        max_value=MAX_INTEGER,
        help_text=gettext_lazy("Works of a higher priority are started first; 0 is the usual one."),
    )


class QueueForm(ParametersForm):
    """Another queue."""

    queue = forms.CharField(
        label=gettext_lazy("queue"),
        max_length=MAX_NAME_LENGTH,
        help_text=gettext_lazy("The name of a queue; workers that serve it will run the works."),
    )

    def clean_queue(self) -> str:
        """Return the name, if a queue can have it."""
        try:
            queue: str = check_queue(self.cleaned_data["queue"], "queue")
        except InvalidOption as refusal:
            raise forms.ValidationError(str(refusal)) from None
        return queue


class ResultDecoder(json.JSONDecoder):
    """Refuses as no JSON what Python cannot read: values nested too deep, numbers of too many figures."""

    def decode(self, s: str, *args: Any, **kwargs: Any) -> Any:
        """Return the value of a text."""
        try:
            return super().decode(s, *args, **kwargs)
        except (RecursionError, ValueError) as error:
            raise json.JSONDecodeError(str(error), s, 0) from None


class ResultField(forms.JSONField):
    """JSON, or nothing."""

    def prepare_value(self, value: Any) -> Any:
        """Show nothing for no result, which JSON would call null."""
        return "" if value is None else super().prepare_value(value)


class ResultForm(ParametersForm):
    """The result of works that are completed by hand."""

    result = ResultField(
        label=gettext_lazy("result"),
        required=False,
        decoder=ResultDecoder,
        help_text=gettext_lazy('JSON, such as 17, "approved" or {"total": 3}; leave it empty for no result.'),
        error_messages={"invalid": gettext_lazy("expected JSON, got: %(value)s")},
    )


# Acts


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectAction(Button):
    """An act that people can choose: for one work, for those ticked in a list, for all that match a filter.

    ``act`` is its name in ``flow.acts.ACTS``. ``permission`` is asked with the work, by the method
    ``has_…_permission`` of the model admin. ``question``, if there is one, is asked first, and so are the
    parameters of ``form``. ``sentence`` goes into the admin's log; it may name ``status``, ``priority``
    and ``queue`` as they were before, and the parameters.
    """

    selected: Any
    permission: str
    act: str
    done: Any
    sentence: Any
    question: Any = ""
    form: type[ParametersForm] | None = None
    untouched: Any = HAD_ENDED
    is_deletion: bool = False

    @property
    def statuses(self) -> frozenset[Status]:
        """The statuses of the works that it acts on."""
        return acts.ACTS[self.act].statuses

    @property
    def asks(self) -> bool:
        """Whether something is asked before the act."""
        return bool(self.question or self.form)

    def run(self, ids: Sequence[str], parameters: Mapping[str, Any]) -> ActReport:
        """Act on works."""
        return acts.ACTS[self.act].run(ids, parameters)

    def logged(self, work: Work, before: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
        """Return what the admin's log says of a work; ``before`` are columns that the act has replaced."""
        status = STATUS_LABELS.get(work.status, work.status)
        old: dict[str, Any] = {"status": status, "priority": work.priority, "queue": work.queue, **before}
        old |= {name: pages.full_moment(at) for name, at in old.items() if isinstance(at, datetime)}
        given = {f"new_{name}": value for name, value in parameters.items()}
        return str(self.sentence % {**old, **given})


ALL = (
    ObjectAction(
        name="retry",
        label=gettext_lazy("Retry"),
        selected=gettext_lazy("Retry selected works"),
        permission="retry",
        act="retry",
        done=ngettext_lazy("%(count)d work was retried.", "%(count)d works were retried.", "count"),
        sentence=gettext_lazy("Retried. It was %(status)s."),
    ),
    ObjectAction(
        name="run_again",
        label=gettext_lazy("Run again"),
        selected=gettext_lazy("Run selected successes again"),
        permission="retry",
        act="run_again",
        done=ngettext_lazy(
            "%(count)d work was queued again, as a new one.",
            "%(count)d works were queued again, as new ones.",
            "count",
        ),
        sentence=gettext_lazy("Run again, as a new work. It was %(status)s."),
    ),
    ObjectAction(
        name="run_now",
        label=gettext_lazy("Run now"),
        selected=gettext_lazy("Run selected works now"),
        permission="change_work",
        act="run_now",
        done=ngettext_lazy("%(count)d work is due now.", "%(count)d works are due now.", "count"),
        sentence=gettext_lazy("Made due now. It was %(status)s for %(run_at)s."),
    ),
    ObjectAction(
        name="complete",
        label=gettext_lazy("Complete"),
        selected=gettext_lazy("Complete selected works"),
        permission="change_work",
        act="complete",
        done=ngettext_lazy("%(count)d work was completed.", "%(count)d works were completed.", "count"),
        sentence=gettext_lazy("Completed by hand. It was %(status)s."),
        question=gettext_lazy(
            "The works end with success and this result, without their handlers. What waits for them goes "
            "on. A gate opens, whatever it waits for."
        ),
        form=ResultForm,
    ),
    ObjectAction(
        name="change_priority",
        label=gettext_lazy("Change priority"),
        selected=gettext_lazy("Change the priority of selected works"),
        permission="change_work",
        act="change_priority",
        done=ngettext_lazy(
            "%(count)d work has another priority.", "%(count)d works have another priority.", "count"
        ),
        sentence=gettext_lazy("Changed the priority from %(priority)s to %(new_priority)s."),
        form=PriorityForm,
    ),
    ObjectAction(
        name="change_queue",
        label=gettext_lazy("Move to another queue"),
        selected=gettext_lazy("Move selected works to another queue"),
        permission="change_work",
        act="change_queue",
        done=ngettext_lazy("%(count)d work was moved.", "%(count)d works were moved.", "count"),
        sentence=gettext_lazy("Moved from the queue %(queue)s to %(new_queue)s."),
        form=QueueForm,
    ),
    ObjectAction(
        name="cancel",
        label=gettext_lazy("Cancel"),
        selected=gettext_lazy("Cancel selected works"),
        permission="cancel",
        act="cancel",
        done=ngettext_lazy("%(count)d work was cancelled.", "%(count)d works were cancelled.", "count"),
        sentence=gettext_lazy("Cancelled. It was %(status)s."),
    ),
    ObjectAction(
        name="delete_chains",
        label=gettext_lazy("Delete chain"),
        selected=gettext_lazy("Delete chains of selected works"),
        permission="delete_chains",
        act="delete",
        done=ngettext_lazy(
            "%(count)d work was deleted with its chain.",
            "%(count)d works were deleted with their chains.",
            "count",
        ),
        sentence=gettext_lazy("Deleted with its chain. It was %(status)s."),
        question=gettext_lazy(
            "Are you sure you want to delete the chains of the selected works? All of their works will be "
            "deleted, with their attempts and what they wait for. Works that run are told to stop; gates "
            "that wait for works that have not ended are decided as if those were cancelled."
        ),
        untouched=WERE_GONE,
        is_deletion=True,
    ),
)
#: The acts by name, in the order of their buttons.
ACTS: Mapping[str, ObjectAction] = {action.name: action for action in ALL}


def action_named(name: str) -> ObjectAction | None:
    """Return an act by its name, or by that under which it is stored; None for one that is not known here."""
    return ACTS.get(name) or next((action for action in ALL if action.act == name), None)
