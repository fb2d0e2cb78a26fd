"""A pipeline by data: crawl, then fetch each page it has output."""

from __future__ import annotations

from typing import Any

from django_ayework import Context, work

#: What ran, in order: (type, unit, input). A test empties it through the fixture ``ran``.
RAN: list[tuple[str, str | None, dict[str, Any]]] = []


@work(name="out.given", then="out.fetch")
def given(ctx: Context, output: Any = None) -> None:
    """Its input may have an output."""


@work(name="out.call", then="out.fetch")
def call(ctx: Context, units: Any) -> None:
    """Give an output by calling for it."""
    ctx.output("first, to be replaced")
    ctx.output(units)


@work(name="out.answer", then="out.fetch")
def answer(ctx: Context, data: Any, output: Any = None, called: Any = None) -> Any:
    """Answer with data, which may have an output."""
    if called is not None:
        ctx.output(called)
    return data


@work(name="out.broken", then="out.fetch")
def broken(ctx: Context, units: Any) -> None:
    """Output, then fail."""
    ctx.output(units)
    raise RuntimeError("no luck")


@work(name="out.fetch", then="out.store")
def fetch(ctx: Context, **data: Any) -> None:
    """Pass its input on."""
    RAN.append((ctx.type, ctx.unit, data))


@work(name="out.store")
def store(ctx: Context, size: int = 0) -> int:
    """The end of the line, which takes one input by name."""
    RAN.append((ctx.type, ctx.unit, {"size": size}))
    return size


@work(name="out.plain")
def plain(ctx: Context, units: Any) -> None:
    """Output without a type to output to."""
    ctx.output(units)


@work(name="out.strict", then="out.store")
def strict(ctx: Context, units: Any) -> None:
    """Output to a type that does not take every input."""
    ctx.output(units)


def units() -> list[str | None]:
    """Return the units that ran, in order."""
    return [unit for _, unit, _ in RAN]
