"""Ours, the raw loops and the peers, measured in one run by the same clock.

Each contestant is a driver process (``drivers/``) that prepares, fills and asks its queue, and worker
processes that are started as its users start them. Rounds are interleaved, so that a noisy moment hits all.
"""
