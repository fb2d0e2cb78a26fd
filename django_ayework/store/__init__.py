"""Rows and locks: the only SQL of the package. Each function is one statement or one short lock."""
