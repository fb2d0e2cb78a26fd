"""How long ended works are kept, as a setting or a type says it."""

from __future__ import annotations

from collections.abc import Mapping

from django_ayework.errors import InvalidOption, did_you_mean
from django_ayework.rules.durations import seconds

#: The ways in which a work ends.
ENDS = ("success", "cancelled", "dead")


def check_retention(value: object, name: str) -> dict[str, float | None]:
    """Return seconds by status, None for good; statuses that are left out are left to the next level down.

    >>> check_retention({"success": 60, "dead": None}, "retention")
    {'success': 60.0, 'dead': None}
    """
    if not isinstance(value, Mapping):
        raise InvalidOption(
            f"expected {name} to be a mapping of {', '.join(ENDS)} to seconds (a number), a timedelta, "
            f'or None for good, such as {{"success": 3600}}, got: {value!r}.'
        )
    checked: dict[str, float | None] = {}
    for status, kept in value.items():
        if status not in ENDS:
            raise InvalidOption(
                f"expected the keys of {name} to be of {', '.join(ENDS)}, "
                f"got: {status!r}.{did_you_mean(str(status), ENDS)}"
            )
        checked[status] = None if kept is None else seconds(kept, f"{name}[{status!r}]")
    return checked
