"""Where attempts run: the line in front of the slots, their threads, and the event loop."""
