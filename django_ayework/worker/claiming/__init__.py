"""What a worker claims: from which lanes, how much, and how fast."""
