import pytest

from django_ayework import Context
from django_ayework.define.types import registry
from tests.define.declared import context, step


@pytest.fixture(autouse=True)
def forget_declared_works():
    """The types that a test declares are gone after it."""
    types, clashes = dict(registry._declared), dict(registry.clashes)
    yield
    registry._declared, registry.clashes = types, clashes


@pytest.fixture
def ctx() -> Context:
    return context()


@pytest.fixture
def build():
    return step()
