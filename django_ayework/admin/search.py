"""Finding works by what has an index, or by their type."""

from __future__ import annotations

import re
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _

from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.models import Work
from django_ayework.store.database import rows

HELP = _(
    "The id of a work or of a group, the beginning of a type, "
    "the object a work is about, such as shop.order:17, or a unit of a type, such as site.fetch:page/7."
)

ABOUT = re.compile(r"(?P<label>[\w.-]+):(?P<key>.+)")


def search(works: QuerySet[Any], term: str) -> QuerySet[Any]:
    """Return the works that the term names."""
    if about := ABOUT.fullmatch(term):
        label = about["label"].lower()
        of_unit = Q(type=about["label"], unit=about["key"])
        return works.filter(Q(about_type=label, about_id=about["key"]) | of_unit | named(term))
    return works.filter(type__startswith=term) if is_by_type(term) else works.filter(named(term))


def named(term: str) -> Q:
    """Return the condition that finds a work or the works of a group by id."""
    return Q(id=term) | Q(group_id=term)


def is_by_type(term: str) -> bool:
    """Tell whether the term is the beginning of a type, and not an id that looks like one."""
    return looks_like_type(term) and not rows(Work).filter(named(term)).exists()


def looks_like_type(term: str) -> bool:
    """Tell whether the term may begin a type's name; a type without code is known by its dot."""
    if ABOUT.fullmatch(term):
        return False
    return "." in term or any(name.startswith(term) for name in (GATE_TYPE, *registry.names()))
