"""Tests that every implementation of a port must pass, to inherit from: of a PubSub, a Store, and a Queue."""

from __future__ import annotations

from django_ayework.testing.conformance.pubsubs import PubSubConformance
from django_ayework.testing.conformance.queues import QueueConformance
from django_ayework.testing.conformance.stores import StoreConformance

__all__ = ["PubSubConformance", "QueueConformance", "StoreConformance"]
