"""A value that cannot be stored, and the path to it, put together while the walk unwinds."""

from __future__ import annotations

from django_ayework.errors import NotEncodable
from django_ayework.rules.codec.text import quoted

#: Steps of a path that are no subscripts.
KEY = "key of "
MEMBER = "{…}"

LONGEST_PATH = 200


class Refusal(Exception):
    """Carries what is wrong up to the root, gathering the steps of the path on its way.

    Paths cost nothing as long as all is well.
    """

    def __init__(self, *, expected: str, got: str, advice: str) -> None:
        super().__init__(expected, got, advice)
        self.expected = expected
        self.got = got
        self.advice = advice
        self.steps: list[str] = []

    def error(self, root: str) -> NotEncodable:
        """Return the error to show to the caller."""
        path = located(root, self.steps)
        return NotEncodable(f"expected {self.expected}, got: {self.got} at {path}; {self.advice}", path=path)


def subscript(key: object) -> str:
    """Return the step to the value under ``key``.

    >>> subscript("lines"), subscript(2)
    ("['lines']", '[2]')
    """
    return f"[{quoted(key)}]"


def located(root: str, steps: list[str]) -> str:
    """Return the path to a value, given the steps from the value up to the root.

    >>> located("order", ["[2]", "['lines']"])
    "order['lines'][2]"
    >>> located("order", [KEY, "['lines']"])
    "key of order['lines']"
    """
    prefix = ""
    while KEY in steps:
        prefix, steps = KEY, steps[steps.index(KEY) + 1 :]
    path = root + "".join(reversed(steps))
    return prefix + (path if len(path) <= LONGEST_PATH else f"{path[:120]}…{path[-60:]}")
