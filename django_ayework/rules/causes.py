"""The cause of a death: an error without what differs from work to work, and a fingerprint of it."""

from __future__ import annotations

import re
from hashlib import blake2b

#: Characters of the first line that are looked at, and of the result.
LOOKED_AT, LONGEST = 4000, 200
#: A word that is longer says something about one work only, such as a token.
LONGEST_WORD = 64
#: Stands for what differs.
REST = "…"

# Each repetition is possessive or ends at a character that it cannot contain. So the time grows with the
# length alone, whatever the text is.
#: An address, a quoted value, or anything up to a space, a bracket or a comma.
PART = re.compile(
    r"(?P<address>[A-Za-z][A-Za-z0-9+.-]*+://[^\s'\"<>]++)"
    r"|(?P<quoted>(?<![\w…])(?:'[^']++'|\"[^\"]++\"|`[^`]++`|“[^”]++”|«[^»]++»|‘[^’]++’))"
    r"|(?P<plain>[^\s'\"`“”«»‘’()\[\]{}<>,;=|]++)"
)
#: A UUID, or a word, which has no hyphens.
WORD = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![\w…])|[\w…]++")
HEX = re.compile(r"[0-9a-fA-F]{8,}+")
#: The remains of moments, lists of numbers and the like, and the sign of a number.
SEVERAL = re.compile(r"…(?:[-.:+/,;\s]*+…)++")
SIGNED = re.compile(r"(?<![\w…+-])[-+]++…")
#: Sentences end, and brackets close, behind an address.
BEHIND = ".,;:!?)]}"


def normalised(error: str) -> str:
    r"""Return the type and the message of an error without what differs from work to work.

    Numbers, ids, quoted values, e-mail addresses, moments and the variable parts of addresses and paths
    become an ellipsis. Only the first line counts. The result has at most 200 characters.

    >>> normalised("ConnectionError: 10.0.0.7:5432 refused after 3.5 s (attempt 2)\nmore")
    'ConnectionError: … refused after … s (attempt …)'
    >>> normalised("KeyError: 'order-17'"), normalised("Http404: no order #17 of ann@example.com")
    ("KeyError: '…'", 'Http404: no order #… of …')
    >>> normalised("HTTPError: 503 for https://api.example.com/v1/orders/17?page=2")
    'HTTPError: … for https://api.example.com/…/orders/…'
    >>> normalised("")
    ''
    """
    line = " ".join(error.lstrip().partition("\n")[0][:LOOKED_AT].split())
    name, colon, message = line.partition(":")
    if not is_type(name) or not (message or " ").startswith(" "):
        return shortened(without_values(line))
    return shortened(name + colon + without_values(message))


def fingerprint(error: str) -> str:
    """Return 16 hexadecimal characters that errors of one cause share.

    >>> fingerprint("KeyError: 17") == fingerprint("KeyError: 4711"), len(fingerprint("KeyError: 17"))
    (True, 16)
    >>> fingerprint("KeyError: 17") == fingerprint("IndexError: 17")
    False
    """
    text = normalised(error).encode("utf-8", "backslashreplace")
    return blake2b(text, digest_size=8).hexdigest()


def is_type(name: str) -> bool:
    """Tell whether a text is the name of an exception, which may have figures.

    >>> is_type("Http404"), is_type("requests.HTTPError"), is_type("ORD17"), is_type("no luck")
    (True, True, False, False)
    """
    last = name.rpartition(".")[2]
    is_name = len(name) <= LONGEST_WORD and all(part.isidentifier() for part in name.split("."))
    return is_name and last[:1].isupper() and any(map(str.islower, last))


def without_values(text: str) -> str:
    """Return a message without values."""
    return SIGNED.sub(REST, SEVERAL.sub(REST, PART.sub(part_without_values, text)))


def part_without_values(found: re.Match[str]) -> str:
    """Return a part of a message without values."""
    part = found[0]
    if found["quoted"]:
        return f"{part[0]}{REST}{part[-1]}"
    if found["address"]:
        return address_without_values(part)
    if "@" in part.strip("@"):
        return REST + behind(part)
    return WORD.sub(word_without_values, part)


def address_without_values(address: str) -> str:
    """Return an address without user, query, fragment and variable segments."""
    end = behind(address)
    scheme, _, rest = address.removesuffix(end).partition("://")
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = place.partition("/")
    kept = f"{host.rpartition('@')[2]}{slash}{path}"
    return f"{scheme}://{WORD.sub(word_without_values, kept)}{end}"


def behind(part: str) -> str:
    """Return the punctuation at the end of a part.

    >>> behind("ann@example.com).")
    ').'
    """
    return part[len(part.rstrip(BEHIND)) :]


def word_without_values(found: re.Match[str]) -> str:
    """Return a word, or an ellipsis for one with figures, a hexadecimal one, or a very long one."""
    word = found[0]
    if len(word) > LONGEST_WORD or HEX.fullmatch(word) or "-" in word or REST in word:
        return REST
    return REST if any(map(str.isnumeric, word)) else word


def shortened(text: str) -> str:
    """Return the first words of a text that are not too long together."""
    if len(text) <= LONGEST:
        return text
    return text[: LONGEST + 1].rpartition(" ")[0] or REST
