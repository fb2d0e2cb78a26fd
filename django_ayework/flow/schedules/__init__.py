"""Schedules: keeping their rows in step with the code, and firing what is due."""
