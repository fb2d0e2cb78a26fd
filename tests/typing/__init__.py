"""Checked by mypy and pyright, and never run: what a user's code may expect of our types."""
