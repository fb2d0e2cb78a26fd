"""News of committed changes: to workers and to whoever waits, in this process and in others."""
