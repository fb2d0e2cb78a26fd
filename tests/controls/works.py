"""Works whose types are controlled; worker processes run them too."""

from __future__ import annotations

from django_ayework import Context, work
from django_ayework.models import Work

#: What ran here, in order.
RAN: list[str] = []


@work(name="controls.plain")
def plain(label: str = "plain") -> str:
    """Run."""
    RAN.append(label)
    return label


@work(name="controls.other")
def other(label: str = "other") -> str:
    """Run beside the plain one."""
    RAN.append(label)
    return label


@work(name="controls.declared", max_running=2)
def declared(ctx: Context) -> int:
    """Return the number of running works of its type, itself included."""
    return Work.objects.filter(type=ctx.type, status="running").count()
