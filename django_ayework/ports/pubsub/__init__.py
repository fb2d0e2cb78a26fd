"""Wake-ups: short messages that may be lost, from process to process."""

from django_ayework.ports.pubsub.chosen import get_pubsub
from django_ayework.ports.pubsub.protocol import PubSub

__all__ = ["PubSub", "get_pubsub"]
