"""The page of a work: what stands where."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_ayework.admin import columns, words
from django_ayework.admin.links import Links, linked
from django_ayework.admin.payloads import boxed, shown
from django_ayework.admin.sections import Fact, Page, Section, Table
from django_ayework.admin.waiting import awaited_by, released, waiting
from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.explain.explaining import explain_row
from django_ayework.flow.options import StoredOptions, decode_options
from django_ayework.flow.payloads import codec_of
from django_ayework.flow.redaction import input_for_people
from django_ayework.models import Attempt, Work
from django_ayework.models.labels import OUTCOME_LABELS
from django_ayework.rules.states import Outcome
from django_ayework.store.database import rows
from django_ayework.store.rows import COLUMNS, WorkRow

#: Attempts that a page shows, the last ones: a work that defers itself may have any number.
SHOWN_ATTEMPTS = 50


def work_page(work: Work, links: Links) -> Page:
    """Return a work's page."""
    options = decode_options(work.options)
    is_gate = work.type == GATE_TYPE
    sections = [
        why(work),
        *failure(work),
        identity(work, links),
        *waiting(work, links),
        *(released(work, links) if is_gate else [data(work, options)]),
        course(work, options),
        *attempts(work),
        *awaited_by(work.id, links),
    ]
    headline = format_html("{} {} {}", work.type, columns.status(work), columns.reason(work))
    return Page(headline, sections)


def why(work: Work) -> Section:
    """Return why the work is not running, in the words that ``explain`` has for it."""
    row = WorkRow._make(getattr(work, column) for column in COLUMNS)
    reasons = explain_row(row).reasons
    return Section(_("Why"), [Fact("", reason.text, wide=True) for reason in reasons])


def failure(work: Work) -> list[Section]:
    """Return the last error, if there is one."""
    return [Section(_("Error"), [Fact("", boxed(work.error), wide=True)])] if work.error else []


def identity(work: Work, links: Links) -> Section:
    """Return which work this is."""
    return Section(
        _("Work"),
        [
            Fact(_("id"), work.id),
            Fact(_("type"), work.type),
            *unit(work, links),
            Fact(_("queue"), work.queue),
            Fact(_("priority"), str(work.priority)),
            Fact(_("fairness"), work.fairness or words.NOTHING),
            Fact(_("about"), links.about(work.about_type, work.about_id)),
            Fact(_("queued by"), links.work(work.parent_id)),
            Fact(_("group"), links.group(work.group_id)),
        ],
    )


def unit(work: Work, links: Links) -> list[Fact]:
    """Return what the work is about within its type, with a link to all works of this unit."""
    if work.unit is None:
        return []
    return [Fact(_("unit"), linked(links.works_where(type=work.type, unit=work.unit), work.unit))]


def data(work: Work, options: StoredOptions) -> Section:
    """Return what the work was given, as far as people may see it, and what it brought."""
    codec = codec_of(registry.find(work.type))
    given = input_for_people(work.type, work.input, options.redact)
    return Section(
        _("Data"),
        [
            Fact(_("input"), shown(given, codec), wide=True),
            Fact(_("result"), shown(work.result, codec), wide=True),
        ],
    )


def course(work: Work, options: StoredOptions) -> Section:
    """Return how the work is run, and how that went so far."""
    return Section(
        _("Course"),
        [
            Fact(_("attempt"), columns.attempt(work)),
            Fact(_("retries"), words.policy(options.retry)),
            Fact(_("progress"), columns.progress_of(work.progress) or words.NOTHING),
            Fact(_("queued at"), words.full_moment(work.queued_at)),
            Fact(_("not before"), words.full_moment(work.run_at)),
            Fact(_("started at"), words.full_moment(work.started_at)),
            Fact(_("ended at"), ending(work)),
            Fact(_("deadline"), words.full_moment(work.deadline)),
            Fact(_("timeout"), words.optional_duration(options.timeout)),
            Fact(_("expires"), words.optional_duration(options.expires)),
            Fact(_("worker"), work.worker or work.completed_by or words.NOTHING),
            Fact(_("leased until"), words.full_moment(work.leased_until)),
        ],
    )


def ending(work: Work) -> str:
    """Return when the work ended, and how long its last attempt took."""
    if work.ended_at is None or work.started_at is None or work.ended_at < work.started_at:
        return words.full_moment(work.ended_at)
    took = words.duration((work.ended_at - work.started_at).total_seconds())
    return f"{words.full_moment(work.ended_at)} ({took})"


def attempts(work: Work) -> list[Section]:
    """Return the attempts that did not succeed, the last first."""
    found = list(rows(Attempt).filter(work_id=work.id).order_by("-number", "-id")[: SHOWN_ATTEMPTS + 1])
    if not found:
        return []
    headings = [_("attempt"), _("outcome"), _("error"), _("started"), _("ended"), _("worker")]
    note = ""
    if len(found) > SHOWN_ATTEMPTS:
        last = ngettext("The last %(count)d attempt.", "The last %(count)d attempts.", SHOWN_ATTEMPTS)
        note = last % {"count": SHOWN_ATTEMPTS}
    table = Table(headings, [attempt_cells(attempt) for attempt in found[:SHOWN_ATTEMPTS]])
    return [Section(_("Attempts that did not succeed"), table=table, note=note)]


def attempt_cells(attempt: Attempt) -> list[str]:
    """Return an attempt as cells; its traceback unfolds."""
    known = attempt.outcome in set(Outcome)
    return [
        str(attempt.number),
        str(OUTCOME_LABELS[Outcome(attempt.outcome)]) if known else attempt.outcome,
        unfolding(attempt),
        words.full_moment(attempt.started_at),
        words.full_moment(attempt.ended_at),
        short_worker(attempt),
    ]


def short_worker(attempt: Attempt) -> str:
    """Return who ran an attempt, shortened; in full on hovering."""
    short = words.short(attempt.worker) or words.NOTHING
    return format_html('<span class="ayework-id" title="{}">{}</span>', attempt.worker, short)


def unfolding(attempt: Attempt) -> str:
    """Return an attempt's error, under which its traceback unfolds."""
    first = words.first_line(attempt.error, 300)
    if not attempt.traceback:
        return format_html('<span class="ayework-error">{}</span>', first) if first else words.NOTHING
    return format_html(
        '<details class="ayework-error"><summary>{}</summary>{}</details>',
        first or _("traceback"),
        boxed(attempt.traceback),
    )
