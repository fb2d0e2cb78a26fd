"""What was measured, what it is held against, and the table that says both."""
