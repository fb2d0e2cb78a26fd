"""The Store: texts under keys, for all processes."""

from django_ayework.ports.kv.chosen import get_store
from django_ayework.ports.kv.protocol import Store

__all__ = ["Store", "get_store"]
