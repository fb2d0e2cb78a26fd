"""Calls from async code: the error names the twin that can be awaited."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.core.exceptions import SynchronousOnlyOperation

P = ParamSpec("P")
T = TypeVar("T")


def twinned(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function with an async twin name it when it is called from async code."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except SynchronousOnlyOperation as refusal:
            raise called_from_async_code(function.__name__) from refusal

    return call


def called_from_async_code(name: str) -> SynchronousOnlyOperation:
    """Return the error of a call that queries the database from async code."""
    return SynchronousOnlyOperation(
        f"{name}() queries the database, so it cannot be called from async code; write await a{name}(…)."
    )
