"""Declaring a type: its name, its handler, its context, and its place in the registry."""

from __future__ import annotations

import functools
import inspect
import sys
import textwrap

import pytest

import django_ayework
from django_ayework import Context, UnknownWorkType, batch_work, registry, work
from django_ayework.define.annotations import Results, annotations_of, results_of
from django_ayework.define.schedules import require_run
from django_ayework.define.types import Registry
from django_ayework.errors import AyeworkError, ImproperWork


def named(module, **options):
    def restock(): ...

    restock.__module__ = module
    return work(restock, **options) if not options else work(**options)(restock)


@pytest.mark.parametrize(("module", "name"), [
    ("tests.app.works", "shop.restock"),  # the label of the app, not its module
    ("tests.app", "shop.restock"), ("tests.app.far.down", "shop.restock"),
    ("example_project.audit.works", "audit.restock"), ("django.contrib.auth.hooks", "auth.restock"),
])  # fmt: skip
def test_a_type_is_named_after_its_app_and_function(module, name):
    assert named(module).name == name
    assert registry.get(name).name == name
    assert repr(named(module)) == f"<WorkType {name}>"


@pytest.mark.parametrize("module", ["tests.define.test_declaring", "tests.apple.works", "__main__", "shop"])
def test_outside_an_app_a_name_must_be_given(module):
    refused = rf'{module}.named.*restock is in no installed app.*@work\(name="\.\.\."\)\.(\n|$)'
    with pytest.raises(ImproperWork, match=refused):
        named(module)


@pytest.mark.parametrize("name", ["stock.refill", "Réassort №1", "n" * 128])
def test_a_given_name_wins(name):
    assert named("tests.app.works", name=name).name == named("nowhere", name=name).name == name


RESERVED = "beginning with @ are reserved, got: '{}'"
UNUSABLE = "a type name to be 1 to 128 printable characters, got: "


@pytest.mark.parametrize(("name", "message"), [
    *((name, RESERVED.format(name)) for name in ("@", "@work/dependency", "@mine")),
    ("app.<lambda>", "is the name of every lambda"),
    *((name, UNUSABLE) for name in ("", "two\nlines", "nul\x00", 5, b"bytes", "\ud800", "n" * 129)),
])  # fmt: skip
def test_a_name_that_cannot_be_used_is_refused(name, message):
    with pytest.raises(ImproperWork, match=message):
        named("tests.app.works", name=name)
    assert registry.find(name) is None


def test_a_function_whose_name_is_too_long_is_refused():
    def handler(): ...

    handler.__module__, handler.__name__ = "tests.app.works", "h" * 200
    with pytest.raises(ImproperWork, match=UNUSABLE):
        work(handler)


def declared(handler, **options):
    return work(name="declared", **options)(handler)


class Machine:
    def __call__(self): ...


def generator():
    yield


async def async_generator():
    yield


@pytest.mark.parametrize(("thing", "got"), [
    ("shop.add", r"got: 'shop\.add'"), (5, "got: 5"), (b"add", "got: b'add'"), (int, "got: <class 'int'>"),
    (Machine, "got: <class .*Machine"), (Machine(), "got: <.*Machine object"),
    (functools.partial(print), r"got: functools\.partial"),
    (work(name="once")(lambda: None), "got: <WorkType once>"),
    (generator, r"got the generator .*generator\(\)"),
    (async_generator, r"got the generator .*async_generator\(\)"),
])  # fmt: skip
def test_only_functions_are_handlers(thing, got):
    with pytest.raises(ImproperWork, match=f"expected @work to decorate a.* function, {got}") as refusal:
        declared(thing)
    assert isinstance(refusal.value, AyeworkError) and isinstance(refusal.value, TypeError)
    with pytest.raises(ImproperWork) as refusal:
        work("shop.add")
    assert str(refusal.value) == (
        "expected @work to decorate a function, got: 'shop.add'. Write @work(name='shop.add')."
    )


class Shop:
    def pack(self, order_id): ...

    @classmethod
    def ship(cls, order_id): ...

    @staticmethod
    def bill(order_id): ...


@pytest.mark.parametrize("decorator", [work, batch_work])
def test_methods_are_refused_and_the_message_says_why(decorator):
    with pytest.raises(ImproperWork) as refusal:
        decorator(name="declared")(Shop.pack)
    assert str(refusal.value) == (
        f"expected @{decorator.__name__} to decorate a function, got the method Shop.pack(self, …): a "
        "worker has no object to call it on. Move it out of the class, and give it what it needs as "
        "inputs, such as a primary key."
    )
    with pytest.raises(ImproperWork, match=r"got: <classmethod.*Move it out of the class\."):
        decorator(name="declared")(Shop.__dict__["ship"])
    assert declared(Shop.bill)(order_id=1).input == {"order_id": 1}


NOT_FIRST = r"the context to be the first parameter of .*, got it as '.*ctx'"
UNNAMED = r"named parameters, got a {} parameter \('{}'\); inputs are stored by name"


@pytest.mark.parametrize(("handler", "kind", "name"), [
    (lambda *args: None, r"\*args", "args"), (lambda a, *rest: None, r"\*args", "rest"),
    (lambda ctx, *args: None, r"\*args", "args"), (lambda *ctx: None, r"\*args", "ctx"),
    (lambda a, /: None, "positional-only", "a"), (lambda ctx, a, /: None, "positional-only", "a"),
    *((lambda a, ctx: None, None, "ctx"), (lambda a, *, ctx: None, None, "ctx")),
    *((lambda *, ctx: None, None, "ctx"), (lambda **ctx: None, None, "ctx")),
])  # fmt: skip
def test_parameters_that_cannot_be_passed_are_refused_at_decoration(handler, kind, name):
    with pytest.raises(ImproperWork, match=UNNAMED.format(kind, name) if kind else NOT_FIRST):
        declared(handler)
    assert declared(lambda ctx, /, a: None)(a=1).input == {"a": 1}


def test_the_handler_stays_the_plain_function():
    def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    decorated = declared(double)
    assert decorated.handler is double
    assert decorated.handler(4) == 8
    assert (decorated.__doc__, decorated.__name__) == ("Twice as much.", "double")
    assert work(name="a")(queue="mail")(double).settings.queue == "mail"  # options in several goes


def test_async_functions_are_told_from_plain_ones():
    async def slow(): ...

    def quick(): ...

    @functools.wraps(slow)
    async def wrapped():
        await slow()

    assert [declared(handler).is_async for handler in (slow, quick, wrapped)] == [True, False, True]


def takes_context(handler) -> bool:
    work_type = work(name="wants")(handler)
    first = next(iter(inspect.signature(handler).parameters), None)
    assert (first in work_type.signature.parameters) is not work_type.takes_context or first is None
    return work_type.takes_context


def annotated(annotation, name="c"):
    def handler(c, a=0): ...

    handler.__annotations__ = {name: annotation}
    return handler


async def with_context(ctx, a): ...
def by_name(context: Context, a: int): ...
def by_path(c: django_ayework.Context): ...
def quoted(c: "Context"): ...  # noqa: UP037  # twice a string


NAMES = ("Context", "django_ayework.Context", "ayework.Context", "'Context'", "'django_ayework.Context'")
OTHERS = [int, "int", "MyContext", "Contextual", "Context_", None, "", textwrap]


@pytest.mark.parametrize(("handler", "expected"), [
    *((annotated(annotation), True) for annotation in (Context, *NAMES)),
    *((handler, True) for handler in (by_name, by_path, quoted, with_context)),
    *((handler, True) for handler in (lambda ctx: None, lambda ctx, a: None, lambda ctx=None: None)),
    *((annotated(annotation), False) for annotation in OTHERS),
    *((handler, False) for handler in (lambda: None, lambda a, b: None, lambda context: None)),
    (lambda **inputs: None, False),
])  # fmt: skip
def test_a_first_parameter_is_the_context_by_its_annotation_or_the_name_ctx(handler, expected):
    assert takes_context(handler) is expected


def test_an_annotation_is_recognised_beside_unknown_names():
    namespace = {}
    source = "from __future__ import annotations\ndef handler(c: Context, order: shop.models.Order): ..."
    exec(source, namespace)
    assert takes_context(namespace["handler"])


@pytest.mark.skipif(sys.version_info < (3, 14), reason="Python evaluates annotations when a function is made")
def test_annotations_may_name_what_only_type_checkers_import_without_quotes():
    namespace = {}
    exec("def handler(c: Context, order: Order, among: list[Order]) -> Order: ...", namespace)
    exec("def nightly(order: Order = None): ...\ndef pack(orders: list[Order]): ...", namespace)
    declared = work(name="tests.lazy")(namespace["handler"])
    assert list(declared.signature.parameters) == ["order", "among"]
    assert (annotations_of(declared), results_of(declared)) == ({}, Results())
    assert list(batch_work(name="tests.lazy_batch")(namespace["pack"]).signature.parameters) == ["input"]
    assert require_run(namespace["nightly"]) is namespace["nightly"]


def registered(module="shop.works", qualname="pack", name="tests.pack"):
    """Declare a function of this module and name."""

    def handler(): ...

    handler.__module__, handler.__qualname__ = module, qualname
    return work(name=name)(handler)


def test_a_declared_type_is_found_by_its_name():
    pack = registered()
    assert registry.get("tests.pack") is registry.find("tests.pack") is pack
    assert pack in list(registry)
    assert registry.names() == sorted(registry.names())
    assert {"shop.add", "shop.notify", "tests.pack"} <= set(registry.names())
    with pytest.raises(TypeError):
        work(name="tests.refused")(lambda *args: None)
    assert "tests.refused" not in registry.names()


def test_an_unknown_name_is_refused_with_the_nearest_one_and_the_likely_cause():
    own = Registry()
    own.register(registry.get("shop.add"))
    own.register(registered("depot.tasks"))
    with pytest.raises(UnknownWorkType) as refusal:
        own.get("shop.ad")

    assert str(refusal.value) == (
        "no work is named 'shop.ad'. Did you mean 'shop.add'? "
        "A work is known once its app is in INSTALLED_APPS and its works.py defines it, or imports the "
        "module that does. Works are loaded here from depot.tasks, tests.app.works."
    )
    assert isinstance(refusal.value, LookupError)
    with pytest.raises(UnknownWorkType, match=r"^no work is named 'zzz'\. A work is known"):
        registry.get("zzz")
    assert registry.find("zzz") is None
    assert Registry().loaded() == "No module that defines works is loaded here."


@pytest.mark.parametrize(("module", "qualname"), [("shop.works", "pack_again"), ("depot.works", "pack")])
def test_two_handlers_of_one_name_are_remembered_and_the_later_one_counts(module, qualname):
    registered()
    reloaded = registered()  # the same function, which replaces itself silently
    assert registry.get("tests.pack") is reloaded
    assert registry.clashes == {}
    second = registered(module, qualname)
    [(first, other)] = registry.clashes.values()
    assert (first.split()[0], other.split()[0]) == ("shop.works.pack", f"{module}.{qualname}")
    assert registry.get("tests.pack") is second
    registry.unregister("tests.pack")
    registry.unregister("never heard of")
    assert registry.find("tests.pack") is None
    assert registry.clashes == {}


def test_types_may_be_declared_while_others_are_looked_at():
    own = Registry()
    own.register(registered())
    for work_type in own:
        own.register(registered(qualname=f"{work_type.origin}_more", name="tests.more"))
    assert own.names() == ["tests.more", "tests.pack"]
