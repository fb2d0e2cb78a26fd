"""The shop of the page: its models, its services, and the works of the section that a test's class names."""

import sys
from types import ModuleType

import pytest
from django.conf import settings

from tests.fixtures import consistent  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


class Shop:
    """The page's ``shop`` with one section pasted into its ``works.py``."""

    def __init__(self, section, modules):
        self.section = section
        self.models, self.services, self.works = (
            modules[f"shop.{n}"] for n in ("models", "services", "works")
        )

    def use(self):
        """Run the section's example of use; return what it has named."""
        from tests.patterns.page import block

        return block(self.section, "").run()

    def order(self, **values):
        """Make an order of an article that is in stock."""
        values = {"email": "ann@example.com", "cents": 1000, **values}
        article = values.pop("article", None) or self.models.Article.objects.create(stock=5)
        return self.models.Order.objects.create(article=article, **values)

    def state_of(self, order):
        """Return an order's state as it is stored."""
        return self.models.Order.objects.get(pk=order.pk).state


@pytest.fixture
def shop(request, monkeypatch):
    """Paste the section of the test's class; its types are gone after the test."""
    from django_ayework.define.types import registry

    types, clashes = dict(registry._declared), dict(registry.clashes)
    yield Shop(request.cls.section, pasted(request.cls.section, monkeypatch))
    registry._declared, registry.clashes = types, clashes
    registry.version += 1


def pasted(section, monkeypatch):
    """Make the modules that the page imports, the works last, as they import the others."""
    from tests.patterns import models, page

    services, works = ModuleType("shop.services"), ModuleType(page.WORKS)
    package = ModuleType("shop")
    package.__dict__.update(models=models, services=services, works=works)
    modules = {"shop": package, "shop.models": models, "shop.services": services, "shop.works": works}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    exec(page.block("What they share", "shop/services.py").code(), services.__dict__)
    exec(page.block(section, "shop/works.py").code(), works.__dict__)
    return modules
