"""The way down through a rich value, on which everything becomes plain data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeAlias

from django_ayework.rules.codec.plain import MAX_DEPTH
from django_ayework.rules.codec.refusal import Refusal


class Walk:
    """One walk: finds the writer of each value, and knows where it is, so that loops are seen.

    ``frozen`` is true inside mapping keys and members of sets, where only what is hashable *after* reading
    can be stored.
    """

    __slots__ = ("_writers", "frozen", "open", "tags")

    def __init__(self, writers: Writers, tags: Collection[str]) -> None:
        self._writers = writers
        self.tags = tags
        self.open: set[int] = set()
        self.frozen = False

    def plain(self, value: Any) -> Any:
        """Return ``value`` as plain data, or raise ``Refusal``."""
        kind = type(value)
        writer = self._writers.get(kind) or self._inherited(kind)
        return writer(self, value)

    def _inherited(self, kind: type) -> Writer:
        """Return the writer of the nearest base class; ``object`` has one, so there always is one.

        Asked of the class, never of ``__class__``: a lazy object pretends to be what it stands for.
        """
        bases = [base for base in kind.__mro__ if base in self._writers]
        if bases == [object] and issubclass(kind, Mapping):
            return self._writers[Mapping]
        return self._writers[bases[0]]

    def hashable(self, value: Any) -> Any:
        """Return the plain form of what must be hashable when it is read."""
        with Frozen(self, True):
            return self.plain(value)

    def thawed(self) -> AbstractContextManager[None]:
        """Lift the demand on hashability: what follows is turned into something else on reading."""
        return Frozen(self, False)

    def inside(self, value: Any) -> AbstractContextManager[None]:
        """Be inside ``value`` for a while; refuse loops and bottomless nesting."""
        return Inside(self, value)

    def require_thawed(self, value: Any, instead: str) -> None:
        """Refuse a container that could not be hashed after reading, where it would have to be."""
        if self.frozen:
            raise Refusal(
                expected="a value that is still hashable when it is read back",
                got=type(value).__name__,
                advice=f"pass {instead}",
            )


class Inside(AbstractContextManager[None]):
    """See ``Walk.inside``."""

    __slots__ = ("open", "value")

    def __init__(self, walk: Walk, value: Any) -> None:
        self.open = walk.open
        self.value = value

    def __enter__(self) -> None:
        if id(self.value) in self.open:
            raise looping(self.value)
        if len(self.open) >= MAX_DEPTH:
            raise too_deep(type(self.value).__name__)
        self.open.add(id(self.value))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open.discard(id(self.value))


class Frozen(AbstractContextManager[None]):
    """Sets ``walk.frozen`` for a while."""

    __slots__ = ("before", "frozen", "walk")

    def __init__(self, walk: Walk, frozen: bool) -> None:
        self.walk = walk
        self.frozen = frozen
        self.before = walk.frozen

    def __enter__(self) -> None:
        self.walk.frozen = self.frozen

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.walk.frozen = self.before


def looping(value: Any) -> Refusal:
    """Return the refusal of a container met inside itself."""
    return Refusal(
        expected="data without loops",
        got=f"{type(value).__name__} that contains itself",
        advice="pass an id in its place",
    )


def too_deep(name: str) -> Refusal:
    """Return the refusal of one level too many."""
    return Refusal(
        expected=f"at most {MAX_DEPTH} levels of nesting",
        got=f"another {name}",
        advice="pass flatter data",
    )


Writer: TypeAlias = Callable[[Walk, Any], Any]
Writers: TypeAlias = Mapping[type, Writer]
