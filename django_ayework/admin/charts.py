"""Small charts as SVG, each with its figures as a text: what ended goes up, what failed goes down."""

from __future__ import annotations

import math
from collections.abc import Sequence

from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from django_ayework.rules.figures import Period

#: Width of one bar with its gap, height above and below the line, in units of the drawing.
STEP, ABOVE, BELOW = 2, 18, 6
WIDE_STEP, WIDE_ABOVE, WIDE_BELOW = 10, 90, 30


def spark(ended: Sequence[int], failures: Sequence[int]) -> str:
    """Return a small chart of the minutes of the last hour; nothing without any attempt."""
    if not any(ended) and not any(failures):
        return ""
    label = _(
        "%(ended)s ended and %(failures)s failures in the last hour, at most %(most)s ended in a minute"
    )
    label %= {"ended": f"{sum(ended):,}", "failures": f"{sum(failures):,}", "most": f"{max(ended):,}"}
    return drawing("ayework-spark", label, ended, failures, (STEP, ABOVE, BELOW))


def chart(periods: Sequence[Period]) -> str:
    """Return a chart of periods."""
    ended = [period.succeeded for period in periods]
    failures = [period.failed + period.died for period in periods]
    return drawing(
        "ayework-chart-bars", summary(periods), ended, failures, (WIDE_STEP, WIDE_ABOVE, WIDE_BELOW)
    )


def summary(periods: Sequence[Period]) -> str:
    """Return the figures of periods in words."""
    most = max(periods, key=lambda period: period.succeeded, default=None)
    figures = {
        "succeeded": f"{sum(period.succeeded for period in periods):,}",
        "failed": f"{sum(period.failed for period in periods):,}",
        "died": f"{sum(period.died for period in periods):,}",
    }
    text = _("%(succeeded)s succeeded, %(failed)s attempts failed, %(died)s died") % figures
    if most is None or not most.succeeded:
        return text
    peak = {"most": f"{most.succeeded:,}", "at": date_format(localtime(most.start), "H:i"), "text": text}
    return _("%(text)s; the peak was %(most)s at %(at)s") % peak


def axis(periods: Sequence[Period]) -> list[str]:
    """Return the times of the first period, the one in the middle, and the last."""
    chosen = (periods[0], periods[len(periods) // 2], periods[-1])
    return [date_format(localtime(period.start), "H:i") for period in chosen]


def drawing(
    kind: str, label: str, up: Sequence[int], down: Sequence[int], sizes: tuple[int, int, int]
) -> str:
    """Return bars above and below a line, of one scale."""
    step, above, below = sizes
    least = below / 5
    scale = 1 / max(max(up, default=0) / above, max(down, default=0) / below, 1 / above)
    return format_html(
        '<svg class="{}" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">'
        '<path class="ayework-ended" d="{}" stroke-width="{}"/>'
        '<path class="ayework-failures" d="{}" stroke-width="{}"/>'
        '<path class="ayework-line" d="M0 {}H{}" stroke-width="1"/></svg>',
        kind,
        label,
        step * len(up),
        above + below,
        bars(up, step, above, -scale, least),
        step * 0.75,
        bars(down, step, above, scale, least),
        step * 0.75,
        above,
        step * len(up),
    )


def bars(values: Sequence[int], step: int, line: int, scale: float, least: float) -> str:
    """Return a path with one bar from the line for each value above 0, of a height that can be seen.

    >>> bars([0, 1, 20], 2, 18, -0.9, 1.2)
    'M3 18v-1.2M5 18v-18.0'
    """
    smallest = math.copysign(least, scale)
    return "".join(
        f"M{number * step + step // 2} {line}v{max(value * scale, smallest, key=abs):.1f}"
        for number, value in enumerate(values)
        if value
    )


def share_bar(share: float) -> str:
    """Return a bar for a share from 0 to 1; the figure stands beside it as text."""
    return format_html(
        '<svg class="ayework-share" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="ayework-share-all" width="100" height="6"/>'
        '<rect class="ayework-share-part" width="{}" height="6"/></svg>',
        f"{min(1.0, max(0.0, share)) * 100:.1f}",
    )
