"""How a worker's threads share the interpreter."""

from __future__ import annotations

import sys

#: Seconds after which Python asks the thread that runs to let another one run, if nobody has said otherwise.
PYTHONS_OWN = 0.005
#: The same in a worker. Threads that claim and settle do a few microseconds of Python between round trips,
#: and after each they wait for whoever is running a handler.
OURS = 0.001


def take_turns_quickly() -> None:
    """Let threads take turns more often; a project that has chosen for itself is left alone."""
    if sys.getswitchinterval() == PYTHONS_OWN:
        sys.setswitchinterval(OURS)
