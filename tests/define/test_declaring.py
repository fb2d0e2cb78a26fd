"""Declaring a type: its name, its handler, its context, and its place in the registry."""

from __future__ import annotations

import functools
import inspect
import textwrap

import pytest

import django_ayework
from django_ayework import Context, UnknownWorkType, batch_work, registry, work
from django_ayework.define.types import Registry
from django_ayework.errors import AyeworkError, ImproperWork


def named(module, **options):
    def restock(): ...

    restock.__module__ = module
    return work(restock, **options) if not options else work(**options)(restock)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("tests.app.works", "shop.restock"),  # the label of the app, not its module
        ("tests.app", "shop.restock"),
        ("tests.app.far.down", "shop.restock"),
        ("example_project.audit.works", "audit.restock"),
        ("django.contrib.auth.hooks", "auth.restock"),
    ],
)
def test_a_type_is_named_after_its_app_and_function(module, name):
    assert named(module).name == name
    assert registry.get(name).name == name
    assert repr(named(module)) == f"<WorkType {name}>"


@pytest.mark.parametrize("module", ["tests.define.test_declaring", "tests.apple.works", "__main__", "shop"])
def test_outside_an_app_a_name_must_be_given(module):
    refused = rf'{module}.named.*restock is in no installed app.*@work\(name="\.\.\."\)\.(\n|$)'
    with pytest.raises(ImproperWork, match=refused):
        named(module)


def test_a_given_name_wins():
    assert named("tests.app.works", name="stock.refill").name == "stock.refill"
    assert named("nowhere", name="Réassort №1").name == "Réassort №1"


@pytest.mark.parametrize("name", ["@", "@work/dependency", "@mine"])
def test_names_beginning_with_an_at_sign_are_reserved(name):
    with pytest.raises(ImproperWork, match=f"beginning with @ are reserved, got: '{name}'"):
        named("tests.app.works", name=name)
    assert registry.find(name) is None


def test_a_name_has_up_to_128_characters():
    assert named("nowhere", name="n" * 128).name == "n" * 128

    def handler(): ...

    handler.__module__, handler.__name__ = "tests.app.works", "h" * 200
    for declare in (lambda: named("nowhere", name="n" * 129), lambda: work(handler)):
        with pytest.raises(ImproperWork, match="a type name to be 1 to 128 printable characters"):
            declare()


@pytest.mark.parametrize("name", ["", "two\nlines", "nul\x00", 5, b"bytes", "\ud800"])
def test_a_name_must_be_printable_text(name):
    with pytest.raises(ImproperWork, match="a type name to be 1 to 128 printable characters, got: "):
        named("tests.app.works", name=name)


def declared(handler, **options):
    return work(name="declared", **options)(handler)


class Machine:
    def __call__(self): ...


@pytest.mark.parametrize(
    "thing",
    ["shop.add", Machine, Machine(), functools.partial(print), 5, b"add", int],
    ids=["text", "class", "instance", "partial", "number", "bytes", "builtin class"],
)
def test_only_functions_are_handlers(thing):
    with pytest.raises(ImproperWork, match="expected @work to decorate a function, got: ") as refusal:
        declared(thing)
    assert isinstance(refusal.value, AyeworkError)
    assert isinstance(refusal.value, TypeError)
    with pytest.raises(ImproperWork, match=r"expected @work to decorate a function, got: 'shop\.add'"):
        work("shop.add")


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


def test_generators_are_refused_by_name():
    def generator():
        yield

    async def async_generator():
        yield

    for handler in (generator, async_generator):
        with pytest.raises(
            ImproperWork, match=rf"async function, got the generator .*{handler.__name__}\(\)"
        ):
            declared(handler)


def test_a_type_cannot_be_a_handler_again():
    @work(name="once")
    def handler(): ...

    with pytest.raises(ImproperWork, match="expected @work to decorate a function, got: <WorkType once>"):
        work(name="twice")(handler)


@pytest.mark.parametrize(
    ("handler", "what"),
    [
        (lambda *args: None, r"a \*args parameter \('args'\)"),
        (lambda a, *rest: None, r"a \*args parameter \('rest'\)"),
        (lambda ctx, *args: None, r"a \*args parameter \('args'\)"),
        (lambda *ctx: None, r"a \*args parameter \('ctx'\)"),
        (lambda a, /: None, r"a positional-only parameter \('a'\)"),
        (lambda ctx, a, /: None, r"a positional-only parameter \('a'\)"),
    ],
)
def test_inputs_that_cannot_be_named_are_refused_at_decoration(handler, what):
    with pytest.raises(ImproperWork, match=f"named parameters, got {what}; inputs are stored by name"):
        declared(handler)


def test_the_context_may_be_positional_only():
    assert declared(lambda ctx, /, a: None)(a=1).input == {"a": 1}


@pytest.mark.parametrize(
    "handler", [lambda a, ctx: None, lambda a, *, ctx: None, lambda *, ctx: None, lambda **ctx: None]
)
def test_a_context_that_is_not_the_first_parameter_is_refused(handler):
    with pytest.raises(ImproperWork, match=r"the context to be the first parameter of .*, got it as '.*ctx'"):
        declared(handler)


def test_the_handler_stays_the_plain_function():
    def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    decorated = declared(double)
    assert decorated.handler is double
    assert decorated.handler(4) == 8
    assert (decorated.__doc__, decorated.__name__) == ("Twice as much.", "double")


def test_async_functions_are_told_from_plain_ones():
    async def slow(): ...

    def quick(): ...

    @functools.wraps(slow)
    async def wrapped():
        await slow()

    assert [declared(handler).is_async for handler in (slow, quick, wrapped)] == [True, False, True]


def test_the_decorator_takes_options_in_several_goes():
    assert work(name="a")(queue="mail")(lambda: None).settings.queue == "mail"


def takes_context(handler) -> bool:
    work_type = work(name="wants")(handler)
    first = next(iter(inspect.signature(handler).parameters), None)
    assert (first in work_type.signature.parameters) is not work_type.takes_context or first is None
    return work_type.takes_context


def annotated(annotation, name="c"):
    def handler(c, a=0): ...

    handler.__annotations__ = {name: annotation}
    return handler


@pytest.mark.parametrize(
    "annotation",
    [
        Context,
        "Context",
        "'Context'",
        "django_ayework.Context",
        "'django_ayework.Context'",
        "ayework.Context",
    ],
)
def test_a_first_parameter_annotated_context_is_the_context(annotation):
    assert takes_context(annotated(annotation))


def test_a_postponed_annotation_is_recognised():
    def by_name(context: Context, a: int): ...
    def by_path(c: django_ayework.Context): ...
    def quoted(c: "Context"): ...  # noqa: UP037  # twice a string

    assert all(map(takes_context, (by_name, by_path, quoted)))


@pytest.mark.parametrize(
    "annotation", [int, "int", "MyContext", "Contextual", "Context_", None, "", textwrap]
)
def test_other_annotations_are_inputs(annotation):
    assert not takes_context(annotated(annotation))


async def with_context(ctx, a): ...


@pytest.mark.parametrize(
    "handler", [lambda ctx: None, lambda ctx, a: None, lambda ctx=None: None, with_context]
)
def test_a_first_parameter_named_ctx_is_the_context(handler):
    assert takes_context(handler)


@pytest.mark.parametrize(
    "handler", [lambda: None, lambda a, b: None, lambda context: None, lambda **inputs: None]
)
def test_handlers_without_a_context(handler):
    assert not takes_context(handler)


def test_an_annotation_of_unknown_names_is_recognised():
    namespace = {}
    source = """
        from __future__ import annotations
        def handler(c: Context, order: shop.models.Order): ...
    """
    exec(textwrap.dedent(source), namespace)
    assert takes_context(namespace["handler"])


def handler_of(module="shop.works", qualname="pack"):
    def handler(): ...

    handler.__module__, handler.__qualname__ = module, qualname
    return handler


def registered(handler, name="tests.pack"):
    return work(name=name)(handler)


def test_a_declared_type_is_found_by_its_name():
    pack = registered(handler_of())
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
    own.register(registered(handler_of("depot.tasks")))
    with pytest.raises(UnknownWorkType) as refusal:
        own.get("shop.ad")

    assert str(refusal.value) == (
        "no work is named 'shop.ad'. Did you mean 'shop.add'? "
        "A work is known once its app is in INSTALLED_APPS and its works.py defines it, or imports the "
        "module that does. Works are loaded here from depot.tasks, tests.app.works."
    )
    assert isinstance(refusal.value, LookupError)


def test_an_unknown_name_suggests_nothing_without_a_near_one():
    with pytest.raises(UnknownWorkType, match=r"^no work is named 'zzz'\. A work is known"):
        registry.get("zzz")
    assert registry.find("zzz") is None
    assert Registry().loaded() == "No module that defines works is loaded here."


@pytest.mark.parametrize(
    ("module", "qualname"), [("shop.works", "pack_again"), ("depot.works", "pack")], ids=["name", "module"]
)
def test_two_handlers_of_one_name_are_remembered_and_the_later_one_counts(module, qualname):
    registered(handler_of())
    second = registered(handler_of(module, qualname))
    assert registry.clashes == {"tests.pack": ("shop.works.pack", f"{module}.{qualname}")}
    assert registry.get("tests.pack") is second
    registry.unregister("tests.pack")
    registry.unregister("never heard of")
    assert registry.find("tests.pack") is None
    assert registry.clashes == {}


def test_the_same_function_after_a_reload_replaces_itself_silently():
    registered(handler_of())
    reloaded = registered(handler_of())
    assert registry.get("tests.pack") is reloaded
    assert registry.clashes == {}


def test_types_may_be_declared_while_others_are_looked_at():
    own = Registry()
    own.register(registered(handler_of()))
    for work_type in own:
        own.register(registered(handler_of(qualname=f"{work_type.origin}_more"), name="tests.more"))
    assert own.names() == ["tests.more", "tests.pack"]
