"""What every implementation of a port must do, as tests to inherit from."""

from django_ayework.testing.conformance.pubsub import PubSubConformance
from django_ayework.testing.conformance.store import StoreConformance

__all__ = ["PubSubConformance", "StoreConformance"]
