"""Arrays as PostgreSQL writes them: one parameter for a whole column, made by the thousand.

The driver's own arrays are put together element by element, in Python and with a check of every type; that
costs more than everything else a statement over many rows does here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any


def array_text(values: Sequence[Any]) -> str:
    r"""Return the text of an array of texts, numbers, booleans, moments or None; cast it to its type.

    PostgreSQL's documentation, "Array Input and Output Syntax": quoted elements escape ``"`` and ``\``.

    >>> print(array_text(["a", 'say "b"', None, 3]))
    {"a","say \"b\"",NULL,"3"}
    """
    with suppress(TypeError):  # not texts alone
        quick = '","'.join(values)
        if values and "\\" not in quick and quick.count('"') == 2 * (len(values) - 1):
            return '{"' + quick + '"}'
    return "{" + ",".join(map(element, values)) + "}"


def element(value: Any) -> str:
    """Return one element, quoted."""
    if value is None:
        return "NULL"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
