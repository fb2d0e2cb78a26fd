"""All types by name."""

import pytest

from django_ayework import UnknownWorkType, registry, work
from django_ayework.define.registry import Registry, origin


def handler_of(module="shop.works", qualname="pack"):
    def handler(): ...

    handler.__module__, handler.__qualname__ = module, qualname
    return handler


def declared(handler, name="tests.pack"):
    return work(name=name)(handler)


def test_a_declared_type_is_found_by_its_name():
    pack = declared(handler_of())

    assert registry.get("tests.pack") is registry.find("tests.pack") is pack
    assert pack in list(registry)
    assert "tests.pack" in registry.names()


def test_names_are_sorted():
    assert registry.names() == sorted(registry.names())
    assert {"shop.add", "shop.notify"} <= set(registry.names())


def test_an_unknown_name_is_refused_with_the_nearest_one_and_the_likely_cause():
    own = Registry()
    own.register(registry.get("shop.add"))
    own.register(declared(handler_of("depot.tasks")))
    with pytest.raises(UnknownWorkType) as refusal:
        own.get("shop.ad")

    assert str(refusal.value) == (
        "no work is named 'shop.ad'. Did you mean 'shop.add'? "
        "A work is known once its app is in INSTALLED_APPS and its works.py defines it, or imports the "
        "module that does. Works are loaded here from depot.tasks, tests.app.works."
    )
    assert isinstance(refusal.value, LookupError)


def test_a_registry_without_types_says_so():
    assert Registry().loaded() == "No module that defines works is loaded here."


def test_a_name_like_no_other_suggests_nothing():
    with pytest.raises(UnknownWorkType, match=r"^no work is named 'zzz'\. A work is known"):
        registry.get("zzz")
    assert registry.find("zzz") is None


def test_two_handlers_of_one_name_are_remembered_and_the_later_one_counts():
    declared(handler_of(qualname="pack"))
    second = declared(handler_of(qualname="pack_again"))

    assert registry.clashes == {"tests.pack": ("shop.works.pack", "shop.works.pack_again")}
    assert registry.get("tests.pack") is second


def test_functions_of_one_name_in_two_modules_clash_too():
    declared(handler_of("shop.works"))
    declared(handler_of("depot.works"))

    assert registry.clashes["tests.pack"] == ("shop.works.pack", "depot.works.pack")


def test_the_same_function_after_a_reload_replaces_itself_silently():
    declared(handler_of())
    reloaded = declared(handler_of())

    assert registry.get("tests.pack") is reloaded
    assert registry.clashes == {}


def test_a_refused_type_is_not_registered():
    before = registry.names()
    with pytest.raises(TypeError):
        work(name="tests.refused")(lambda *args: None)

    assert registry.names() == before


def test_a_forgotten_type_takes_its_clash_with_it():
    declared(handler_of(qualname="one"))
    declared(handler_of(qualname="two"))
    registry.unregister("tests.pack")
    registry.unregister("never heard of")

    assert registry.find("tests.pack") is None
    assert registry.clashes == {}


def test_types_may_be_declared_while_others_are_looked_at():
    own = Registry()
    own.register(declared(handler_of()))
    for work_type in own:
        own.register(declared(handler_of(qualname=f"{origin(work_type)}_more"), name="tests.more"))

    assert own.names() == ["tests.more", "tests.pack"]
