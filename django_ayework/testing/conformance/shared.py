"""What the tests of several ports use."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connections

T = TypeVar("T")

#: Seconds after which a message that was sent again and again, or an id that was pushed, counts as lost.
PATIENCE = 20.0
#: Texts that some storage loses, shortens, or takes for others.
AWKWARD_TEXTS = (
    "", " ", "a", "A", "a ", " a", "ä", "🚀", "a\nb", "\0", "'", '"', "%s", "\\", "1", "01", "null",
)  # fmt: skip


def new_key() -> str:
    """Return a key that nobody has used."""
    return f"conformance-{uuid.uuid4()}-"


def raises(kind: type[BaseException], act: Callable[[], object]) -> bool:
    """Tell whether it raises this."""
    try:
        act()
    except kind:
        return True
    return False


def in_threads(count: int, act: Callable[[int], T]) -> list[T]:
    """Act in so many threads, which leave no connection behind; return what each gives, by its number."""

    def run(number: int) -> T:
        try:
            return act(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))
