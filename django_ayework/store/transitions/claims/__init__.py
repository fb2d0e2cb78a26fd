"""The ways to claim, one per database, and the one that any database takes."""
