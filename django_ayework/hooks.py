"""Hooks that come with the package, to be named in the setting ``AYEWORK``."""

from django_ayework.rules.health import PressureInfo, adaptive_delay

__all__ = ["PressureInfo", "adaptive_delay"]
