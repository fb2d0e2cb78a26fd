"""Texts that people read: phrases, durations, moments and lists, stored errors, inputs with parts hidden."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django_ayework.errors import did_you_mean
from django_ayework.rules.codec.text import UnknownTag
from django_ayework.rules.durations import require_aware

MAX_ERROR_LENGTH = 10_000
MAX_TRACEBACK_LENGTH = 100_000
MAX_LINE_LENGTH = 200
MAX_PATH_LENGTH = 255

#: The first words of the error that a parked work shows; the moment follows.
PARKED = "no worker here knows this type, since "

#: Stands for a hidden part of an input.
HIDDEN = "••••"


# Phrases: English texts that know what they were made of, so that they can be shown in another language.


class Phrase(str):
    """A text in English, made of a template and values, or of texts that are joined.

    As a ``str`` it is what programs, logs and commands get. ``admin.pages`` shows it in the current language.
    Among the values may be other phrases, and lists of texts, which are joined with commas. The functions
    ``phrase`` and ``phrases`` make it, and mark the template for the catalogues.
    """

    one: str = ""
    many: str = ""
    values: dict[str, Any]
    parts: Sequence[str] = ()
    between: str = ""


def phrase(text: str, /, **values: Any) -> Phrase:
    """Return a text with values in it, by their names.

    >>> phrase("%(name)s has ended, as %(works)s did.", name="a", works=["b", "c"])
    'a has ended, as b, c did.'
    """
    return made(text, "", text, values)


def phrases(one: str, many: str, count: int, /, **values: Any) -> Phrase:
    """Return the text for one thing or for many; ``%(count)d`` is how many.

    >>> phrases("%(count)d work", "%(count)d works", 1), phrases("%(count)d work", "%(count)d works", 3)
    ('1 work', '3 works')
    """
    return made(one, many, one if count == 1 else many, {"count": count, **values})


def made(one: str, many: str, chosen: str, values: dict[str, Any]) -> Phrase:
    """Return a phrase of a template."""
    found = Phrase(filled(chosen, values))
    found.one, found.many, found.values = one, many, values
    return found


def filled(template: str, values: dict[str, Any]) -> str:
    """Return a template with the values in it; one without values is taken as it is."""
    if not values:
        return template
    return template % {
        name: ", ".join(each) if isinstance(each, list) else each for name, each in values.items()
    }


def joined(parts: Sequence[str], between: str = " ") -> Phrase:
    """Return texts one after the other, each a sentence or an item of a list.

    >>> joined([phrase("It has ended."), "Retry it."])
    'It has ended. Retry it.'
    """
    found = Phrase(between.join(parts))
    found.parts, found.between, found.values = parts, between, {}
    return found


# Texts


def duration(seconds: float) -> str:
    """Return a duration by its two largest units.

    >>> duration(0.25), duration(1.5), duration(90), duration(86400), duration(3725)
    ('250 ms', '1.5 s', '1 min 30 s', '1 d', '1 h 2 min')
    """
    if 0 < seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = timedelta(seconds=round(seconds))
    hours, rest = divmod(whole.seconds, 3600)
    parts = ((whole.days, "d"), (hours, "h"), (rest // 60, "min"), (rest % 60, "s"))
    return " ".join([f"{number} {unit}" for number, unit in parts if number][:2])


def moment_text(at: datetime | None, now: datetime) -> str:
    """Return a moment in the zone of ``now``, and how far away it is; a dash where a row has none.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> moment_text(noon + timedelta(minutes=5), noon), moment_text(noon - timedelta(hours=1), noon)
    ('2026-01-01 12:05:00 UTC (in 5 min)', '2026-01-01 11:00:00 UTC (1 h ago)')
    """
    if at is None:  # no transition leaves it out, but people may change rows by hand
        return "–"
    away = round((at - now).total_seconds())
    moment = f"{at.astimezone(now.tzinfo):%Y-%m-%d %H:%M:%S %Z}"
    if away > 0:
        return phrase("%(moment)s (in %(duration)s)", moment=moment, duration=duration(away))
    if away < 0:
        return phrase("%(moment)s (%(duration)s ago)", moment=moment, duration=duration(-away))
    return phrase("%(moment)s (now)", moment=moment)


def sentence(text: str) -> str:
    """Return a text with a full stop, unless it ends as a sentence already.

    >>> sentence("It failed: no luck"), sentence("Why?")
    ('It failed: no luck.', 'Why?')
    """
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def counted(number: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "work"), counted(1200, "work")
    ('1 work', '1200 works')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(items: Sequence[str], total: int) -> str:
    """Return the first items of ``total``, and how many more there are.

    >>> listed(["a", "b"], 2), listed(["a", "b"], 7)
    ('a, b', 'a, b and 5 more')
    """
    more = total - len(items)
    if more > 0:
        return phrase("%(items)s and %(count)d more", items=list(items), count=more)
    return joined(items, ", ")


def error_text(error: BaseException) -> str:
    """Return an exception as ``"<ErrorName>: <message>"``, cut at 10 000 characters; a group with its own.

    >>> error_text(ValueError("no such card"))
    'ValueError: no such card'
    >>> error_text(ExceptionGroup("tasks failed", [ValueError("no such card")]))
    'ExceptionGroup: tasks failed (1 sub-exception): ValueError: no such card'
    """
    name = type(error).__name__
    try:
        message = str(error)
        if isinstance(error, BaseExceptionGroup):
            message += f": {'; '.join(dict.fromkeys(map(error_text, error.exceptions)))}"
        return cut(f"{name}: {message}" if message else name)
    except BaseException as unprintable:
        return cut(f"{name}: (its message cannot be printed: {type(unprintable).__name__})")


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception, as it is stored.

    Python cannot print an exception whose attributes raise, nor a SyntaxError with values of other types. Its
    own frames are returned then, without its causes.
    """
    try:
        return cut_traceback("".join(traceback.format_exception(error)))
    except BaseException as unprintable:
        note = f"(its traceback cannot be printed: {type(unprintable).__name__})"
        frames = "".join(traceback.format_tb(error.__traceback__))
        return cut_traceback(f"{frames}{error_text(error)}\n{note}\n")


def class_path(error: BaseException) -> str:
    """Return the module and the name of an exception's class; nothing for one too long to store.

    >>> class_path(ValueError("no such card"))
    'builtins.ValueError'
    """
    path = storable(f"{type(error).__module__}.{type(error).__qualname__}")
    return path if len(path) <= MAX_PATH_LENGTH else ""


def cause_text(cause: BaseException | str) -> str:
    """Return a cause, given as an exception or as a text, as text."""
    return error_text(cause) if isinstance(cause, BaseException) else cut(str(cause))


def cut(text: str) -> str:
    """Return a text short enough to store."""
    text = storable(text)
    return text if len(text) <= MAX_ERROR_LENGTH else text[:MAX_ERROR_LENGTH] + "… [truncated]"


def cut_traceback(text: str) -> str:
    """Return a traceback short enough to store: its beginning, and its end, where the error is.

    >>> [len(cut_traceback("x" * length)) for length in (7, MAX_TRACEBACK_LENGTH, 10**7)]
    [7, 100000, 100028]
    """
    text = storable(text)
    if len(text) <= MAX_TRACEBACK_LENGTH:
        return text
    half = MAX_TRACEBACK_LENGTH // 2
    return f"{text[:half]}\n… [truncated in between] …\n{text[-half:]}"


def storable(text: str) -> str:
    r"""Return a text with the characters that no database takes escaped.

    >>> storable("nul \x00, half a pair \ud800") == r"nul \x00, half a pair \ud800"
    True
    """
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def is_storable(text: str) -> bool:
    """Tell whether every database takes all characters of a text; pages take the same ones."""
    return storable(text) == text


def error_line(error: str) -> str:
    """Return the first line of a stored error, shortened.

    >>> error_line("ValueError: no\\nmore"), error_line("")
    ('ValueError: no', 'no error was kept')
    """
    line = error.strip().partition("\n")[0] or "no error was kept"
    return line if len(line) <= MAX_LINE_LENGTH else line[: MAX_LINE_LENGTH - 1] + "…"


def error_sentence(error: str) -> str:
    """Return the first line of a stored error, shortened, with a full stop.

    >>> error_sentence("ValueError: no\\nmore"), error_sentence("")
    ('ValueError: no.', 'no error was kept.')
    """
    return sentence(error_line(error)) if error.strip() else phrase("no error was kept.")


def parked_error(since: datetime, before: str = "") -> str:
    """Return the error of a work that is parked because its type is unknown since a moment.

    ``before`` is the error of its last attempt. It stays below, for the worker that takes the work later.
    """
    return f"{PARKED}{since.isoformat(sep=' ', timespec='seconds')}" + (f"\n{before}" if before else "")


def is_parked(error: str) -> bool:
    """Tell whether an error is that of a parked work.

    >>> is_parked("ValueError: no")
    False
    """
    return error.startswith(PARKED)


def parked_since(error: str, now: datetime) -> datetime:
    """Return the moment since when a work is parked; now, if it was not parked before.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> parked_since(parked_error(noon), noon + timedelta(hours=1)) == noon
    True
    """
    if is_parked(error):
        try:
            moment = error.removeprefix(PARKED).partition("\n")[0]
            return require_aware(datetime.fromisoformat(moment), "since")
        except ValueError:
            pass
    return now


def error_before(error: str) -> str:
    """Return the error that a work had before it was parked; the error itself of one that was not.

    >>> from datetime import UTC
    >>> error_before(parked_error(datetime(2026, 1, 1, tzinfo=UTC), "ValueError: no"))
    'ValueError: no'
    """
    return error.partition("\n")[2] if is_parked(error) else error


def parked_again(error: str, now: datetime) -> str:
    """Return the error of a work that is parked now, and perhaps was before."""
    return parked_error(parked_since(error, now), error_before(error))


def if_renamed(type: str, known: Iterable[str]) -> str:
    """Return the advice for an unknown type that may have another name now.

    >>> print(if_renamed("shop.send_recipt", ["shop.send_receipt"]))
    Did you mean 'shop.send_receipt'? If its function was renamed or moved,
    keep the stored name: @work(name="shop.send_recipt").
    """
    advice = phrase(
        'If its function was renamed or moved, keep the stored name: @work(name="%(type)s").', type=type
    )
    name = did_you_mean(type, known).removeprefix(" Did you mean ").removesuffix("?")
    return joined([phrase("Did you mean %(name)s?", name=name), advice]) if name else advice


def redacted(value: Any, paths: Iterable[str]) -> Any:
    """Return the value with the parts hidden that the dotted paths lead to, in each element of a list.

    Where a path leads into something without parts, all of it is hidden.

    >>> redacted({"card": {"number": 4111, "holder": "Ann"}}, ["card.number"])
    {'card': {'number': '••••', 'holder': 'Ann'}}
    >>> redacted({"cards": [{"number": 4111}], "pin": 17}, ["cards.number", "pin"])
    {'cards': [{'number': '••••'}], 'pin': '••••'}
    >>> redacted({"card": "4111 Ann"}, ["card.number"])
    {'card': '••••'}
    """
    for path in paths:
        value = without(value, path)
    return value


def without(value: Any, path: str) -> Any:
    """Return the value with the part hidden that one path leads to."""
    if isinstance(value, Mapping) and not isinstance(value, UnknownTag):
        return {key: item_without(key, item, path) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without(item, path) for item in value]
    return None if value is None else HIDDEN


def item_without(key: object, item: Any, path: str) -> Any:
    """Return one item of a mapping: hidden if the path ends at its key, which may have dots of its own."""
    if key == path:
        return HIDDEN
    if isinstance(key, str) and path.startswith(f"{key}."):
        return without(item, path[len(key) + 1 :])
    return item
