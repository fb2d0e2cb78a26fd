"""Which functions can be handlers, and what becomes of them."""

import functools

import pytest

from django_ayework import batch_work, work
from django_ayework.errors import AyeworkError, ImproperWork


def declared(handler, **options):
    return work(name="declared", **options)(handler)


class Machine:
    def __call__(self): ...


def generator():
    yield


async def async_generator():
    yield


@pytest.mark.parametrize(
    "thing",
    ["shop.add", Machine, Machine(), functools.partial(print), 5, b"add", int],
    ids=["text", "class", "instance", "partial", "number", "bytes", "builtin class"],
)
def test_only_functions_are_handlers(thing):
    with pytest.raises(ImproperWork, match="expected @work to decorate a function, got: "):
        declared(thing)


def test_a_name_without_its_keyword_is_refused():
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


def test_static_methods_are_functions():
    assert declared(Shop.bill)(order_id=1).input == {"order_id": 1}


@pytest.mark.parametrize("handler", [generator, async_generator])
def test_generators_are_refused_by_name(handler):
    with pytest.raises(ImproperWork, match=rf"async function, got the generator {handler.__name__}\(\)"):
        declared(handler)


def test_a_type_cannot_be_a_handler_again():
    @work(name="once")
    def handler(): ...

    with pytest.raises(ImproperWork, match="expected @work to decorate a function, got: <WorkType once>"):
        work(name="twice")(handler)


def test_a_refusal_is_an_error_of_the_package_and_a_type_error():
    assert issubclass(ImproperWork, AyeworkError)
    assert issubclass(ImproperWork, TypeError)


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
