"""How much memory this process uses."""

from __future__ import annotations

import sys
from pathlib import Path

STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return how much memory the process holds now; where the system does not tell, the most it ever held.

    Linux tells in ``/proc``. macOS and others tell the peak alone, so there one spike counts for ever.
    """
    try:
        import resource
    except ImportError:  # neither Linux nor macOS
        return 0
    try:
        return int(STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
