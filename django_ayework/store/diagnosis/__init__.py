"""Figures about the database for ``ayework_doctor``. Functions read a bounded amount, and lock nothing."""
