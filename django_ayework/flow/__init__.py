"""Use cases: one per file, each one transaction ending in effects that wait for its commit."""
