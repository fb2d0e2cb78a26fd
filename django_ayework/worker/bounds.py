"""How long things may take, in seconds. Read as ``bounds.NAME`` where they are needed."""

from __future__ import annotations

#: After the grace: ended works are settled, threads end, the row of the worker is written.
FAREWELL = 10.0
#: Part of FAREWELL: the time for outcomes that are not written yet when the grace ends.
LAST_OUTCOMES = 4.0
#: Part of FAREWELL: the time for the last turns of the threads of leases, maintenance and schedules.
LAST_DUTIES = 2.0
#: The time that a supervisor gives its children beyond their grace and farewell.
CHILDREN = 5.0
#: A process whose worker has ended may take that long to end itself, such as for ``atexit``.
EXIT = 5.0
#: Between two checks of the watchdog.
CHECK_EVERY = 0.25
#: A thread of the engine without progress for that long, and not at rest, is stuck.
STALL = 60.0
#: Beyond STATEMENT_TIMEOUT: what the answer to a statement may need on its way.
ANSWER = 2.0
#: Seconds between two heartbeats that a child sends to its supervisor.
BEAT = 1.0
