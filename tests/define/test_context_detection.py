"""Which handlers are given the context."""

from __future__ import annotations

import inspect
import textwrap

import pytest

import django_ayework
from django_ayework import Context, work
from django_ayework.define.context import Context as SameContext


def wants(handler) -> bool:
    work_type = work(name="wants")(handler)
    first = next(iter(inspect.signature(handler).parameters), None)
    assert (first in work_type.signature.parameters) is not work_type.takes_context or first is None
    return work_type.takes_context


def annotated(annotation, name="c"):
    def handler(c, a=0): ...

    handler.__annotations__ = {name: annotation}
    return handler


def test_a_first_parameter_named_ctx():
    assert wants(lambda ctx: None)
    assert wants(lambda ctx, a: None)
    assert wants(lambda ctx=None: None)


@pytest.mark.parametrize(
    "annotation",
    [
        Context,
        SameContext,
        "Context",
        "'Context'",
        "django_ayework.Context",
        "'django_ayework.Context'",
        "ayework.Context",
    ],
)
def test_a_first_parameter_annotated_context(annotation):
    assert wants(annotated(annotation))


def test_an_annotation_postponed_by_the_future_import():
    def by_name(context: Context, a: int): ...
    def by_path(c: django_ayework.Context): ...
    def quoted(c: "Context"): ...  # noqa: UP037  # twice a string

    assert all(map(wants, (by_name, by_path, quoted)))


@pytest.mark.parametrize(
    "annotation", [int, "int", "MyContext", "Contextual", "Context_", None, "", textwrap]
)
def test_other_annotations_are_inputs(annotation):
    assert not wants(annotated(annotation))


def test_handlers_without_a_context():
    assert not wants(lambda: None)
    assert not wants(lambda a, b: None)
    assert not wants(lambda context: None)  # neither the name nor the annotation
    assert not wants(lambda **inputs: None)


def test_an_annotation_that_means_nothing_at_run_time_is_no_trouble():
    namespace = {}
    source = """
        from __future__ import annotations
        def handler(c: Context, order: shop.models.Order): ...
    """
    exec(textwrap.dedent(source), namespace)

    assert wants(namespace["handler"])


def test_async_handlers_too():
    async def handler(ctx, a): ...

    assert wants(handler)
