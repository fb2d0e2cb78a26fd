"""Lists, tuples, sets and mappings, and the walk that encodes nested values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeAlias

from django_ayework.errors import NotEncodable
from django_ayework.rules.codec.text import MAX_DEPTH, TAG, UnknownTag, pieces, quoted, tagged, write

# --- refusal ---
# A value that cannot be stored, and the path to it, put together while the walk unwinds.

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


# --- walk ---
# The way down through a rich value, on which everything becomes plain data.


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

# --- arrays ---
# Lists, tuples, sets and frozen sets.


def write_list(walk: Walk, value: list[Any]) -> Any:
    """Write a JSON array."""
    walk.require_thawed(value, "a tuple")
    return elements(walk, value)


def write_tuple(walk: Walk, value: tuple[Any, ...]) -> Any:
    """Write a tagged array."""
    return tagged("tuple", elements(walk, value))


def write_set(walk: Walk, value: set[Any]) -> Any:
    """Write a tagged array."""
    walk.require_thawed(value, "a frozenset")
    return tagged("set", members(walk, value))


def write_frozenset(walk: Walk, value: frozenset[Any]) -> Any:
    """Write a tagged array."""
    return tagged("frozenset", members(walk, value))


def elements(walk: Walk, values: Iterable[Any]) -> list[Any]:
    """Return the plain forms of the elements, in order."""
    plain: list[Any] = []
    with walk.inside(values):
        try:
            for value in values:
                plain.append(walk.plain(value))
        except Refusal as refusal:
            refusal.steps.append(f"[{len(plain)}]")
            raise
    return plain


def members(walk: Walk, values: Iterable[Any]) -> list[Any]:
    """Return the plain forms of the members, sorted by their text so that equal sets are written alike."""
    with walk.inside(values):
        try:
            return sorted((walk.hashable(value) for value in values), key=write)
        except Refusal as refusal:
            refusal.steps.append(MEMBER)
            raise


def read_tuple(plain: Any) -> tuple[Any, ...]:
    """Read a tuple."""
    return tuple(require_list(plain))


def read_set(plain: Any) -> set[Any]:
    """Read a set; raise TypeError if a member cannot be hashed."""
    return set(require_list(plain))


def read_frozenset(plain: Any) -> frozenset[Any]:
    """Read a frozen set; raise TypeError if a member cannot be hashed."""
    return frozenset(require_list(plain))


def require_list(plain: Any) -> list[Any]:
    """Return ``plain``, which must be a list."""
    if type(plain) is not list:
        raise TypeError("expected a list")
    return plain


# --- mappings ---
# Mappings: JSON objects where the keys allow it, else lists of pairs.
#
# >>> from django_ayework.rules.codec import encode
# >>> encode({"a": 1}), encode({1: "a"})
# ('{"a":1}', '{"$ayework":"dict","value":[[1,"a"]]}')

Items: TypeAlias = list[tuple[Any, Any]]


def write_mapping(walk: Walk, value: Mapping[Any, Any]) -> Any:
    """Write a mapping whose keys may be anything; one that has our tag for a key is escaped as pairs."""
    walk.require_thawed(value, "a tuple of pairs")
    require_one_value_per_key(value)
    items = list(value.items())
    names = object_names(items)
    with walk.inside(value):
        if names is None or TAG in names:
            return tagged("dict", pairs(walk, items))
        return json_object(walk, names, items)


def write_unknown(walk: Walk, value: UnknownTag) -> Any:
    """Write back what was passed through, as it came, unless it has become something else meanwhile."""
    items = list(value.items())
    names = object_names(items)
    if names is None or TAG not in names or is_known(walk, value[TAG]):
        return write_mapping(walk, value)
    with walk.inside(value):
        return json_object(walk, names, items)


def is_known(walk: Walk, tag: Any) -> bool:
    """Tell whether ``tag`` means something to this codec."""
    return isinstance(tag, str) and tag in walk.tags


def object_names(items: Items) -> list[str] | None:
    """Return the keys as names of a JSON object, or None if they are more than different texts."""
    if not all(issubclass(type(key), str) for key, _ in items):
        return None
    names = [str.__str__(key) for key, _ in items]
    if len(set(names)) < len(names) or any(len(pieces(name)) > 1 for name in names):
        return None
    return names


def json_object(walk: Walk, names: Iterable[str], items: Items) -> dict[str, Any]:
    """Return a JSON object with the values under ``names``."""
    return {name: under(walk, key, value) for name, (key, value) in zip(names, items, strict=True)}


def pairs(walk: Walk, items: Items) -> list[list[Any]]:
    """Return pairs of key and value, both as plain data."""
    plain = [[key_of(walk, key), under(walk, key, value)] for key, value in items]
    stored = [write(key) for key, _ in plain]
    if len(set(stored)) < len(stored):
        raise alike(next(key for (key, _), text in zip(items, stored, strict=True) if stored.count(text) > 1))
    return plain


def under(walk: Walk, key: Any, value: Any) -> Any:
    """Return the plain form of the value under ``key``."""
    try:
        return walk.plain(value)
    except Refusal as refusal:
        refusal.steps.append(subscript(key))
        raise


def key_of(walk: Walk, key: Any) -> Any:
    """Return the plain form of a key."""
    try:
        return walk.hashable(key)
    except Refusal as refusal:
        refusal.steps.append(KEY)
        raise


def alike(key: Any) -> Refusal:
    """Return the refusal of a key that would be read back as equal to another one."""
    refusal = Refusal(
        expected="keys that differ when stored",
        got=f"two {type(key).__name__} keys that are written alike",
        advice="pass a list of pairs",
    )
    refusal.steps.append(KEY)
    return refusal


def require_one_value_per_key(value: Any) -> None:
    """Refuse mappings such as ``request.POST``, which would silently lose all but the last values."""
    if hasattr(value, "getlist") and hasattr(value, "lists"):
        raise Refusal(
            expected="a mapping with one value per key",
            got=type(value).__name__,
            advice="pass dict(….lists()) to keep all values, or ….dict() for the last ones",
        )


def read_dict(plain: Any) -> dict[Any, Any]:
    """Read a mapping from pairs; raise TypeError or ValueError if they are not proper pairs."""
    mapping: dict[Any, Any] = {}
    for pair in require_list(plain):
        key, value = require_list(pair)
        if key in mapping:
            raise ValueError("expected each key once")
        mapping[key] = value
    return mapping
