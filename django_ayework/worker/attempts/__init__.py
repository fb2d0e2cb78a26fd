"""A claimed work and its attempt: the call of the handler, its transactions, and what it comes to."""
