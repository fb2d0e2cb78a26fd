"""Hooks that come with the package, to be named in the setting ``AYEWORK``."""

from django_ayework.rules.backpressure import PressureInfo, adaptive_delay

__all__ = ["PressureInfo", "adaptive_delay"]
