"""A running worker: threads, one event loop, OS signals."""
