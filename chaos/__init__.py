"""Fault injection: workers and callers run while processes, servers, networks and disks fail."""
