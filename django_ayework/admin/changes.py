"""Changes by a form in words for the admin's log: each field with its old and its new value."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

#: Characters of a value that the log keeps.
LONGEST = 200


def in_words(value: Any) -> str:
    """Return a value of a field in words; nothing for none."""
    if value is None or value == "":
        return _("nothing")
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return str(value)[:LONGEST]


def changed_in_words(form: Any) -> str:
    """Return a sentence for each field that a valid form has changed."""
    return " ".join(
        _("%(field)s: %(old)s → %(new)s.")
        % {
            "field": form.fields[name].label or name,
            "old": in_words(form.initial.get(name)),
            "new": in_words(form.cleaned_data.get(name)),
        }
        for name in form.changed_data
    )


def differences(labels: dict[str, Any], old: dict[str, Any], new: dict[str, Any]) -> str:
    """Return a sentence for each value that differs; ``labels`` are the names that people read."""
    return " ".join(
        _("%(field)s: %(old)s → %(new)s.")
        % {"field": label, "old": in_words(old.get(name)), "new": in_words(new[name])}
        for name, label in labels.items()
        if name in new and old.get(name) != new[name]
    )
