"""How works are told that run in the process that enqueued them."""

from __future__ import annotations

#: What the id begins with under which a process holds works that skipped the queue; workers have none.
DIRECT = "direct-"
