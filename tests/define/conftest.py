import pytest

from django_ayework.define.registry import registry


@pytest.fixture(autouse=True)
def forget_declared_works():
    """The types that a test declares are gone after it."""
    types, clashes = dict(registry._types), dict(registry.clashes)
    yield
    registry._types, registry.clashes = types, clashes
