"""Works that are run together: how they gather, and how a batch of them runs."""
