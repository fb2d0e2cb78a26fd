"""Connections of the engine with other parts of Django, each in a package of its own."""
