"""Cron: expressions of five fields, and the moments they name in a time zone."""

from django_ayework.rules.cron.expression import Cron, parse_cron
from django_ayework.rules.cron.moments import Dst, next_after

__all__ = ["Cron", "Dst", "next_after", "parse_cron"]
