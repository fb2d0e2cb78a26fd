"""Schedules: when they have occurrences, and what becomes of those that nobody was there for."""
