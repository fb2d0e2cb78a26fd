"""What a type of work is called."""

import pytest

from django_ayework import registry, work
from django_ayework.errors import ImproperWork


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


@pytest.mark.parametrize("module", ["tests.define.test_naming", "tests.apple.works", "__main__", "shop"])
def test_outside_an_app_a_name_must_be_given(module):
    refused = rf'{module}.named.*restock is in no installed app.*@work\(name="\.\.\."\)\.$'
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
    with pytest.raises(ImproperWork, match="a type name to be 1 to 128 printable characters"):
        named("nowhere", name="n" * 129)


@pytest.mark.parametrize("name", ["", "two\nlines", "nul\x00", 5, b"bytes", "\ud800"])
def test_a_name_must_be_printable_text(name):
    with pytest.raises(ImproperWork, match="a type name to be 1 to 128 printable characters, got: "):
        named("tests.app.works", name=name)


def test_a_derived_name_can_be_too_long_too():
    def handler(): ...

    handler.__module__, handler.__name__ = "tests.app.works", "h" * 200
    with pytest.raises(ImproperWork, match="1 to 128 printable"):
        work(handler)


def test_a_type_shows_its_name():
    assert repr(named("tests.app.works")) == "<WorkType shop.restock>"
