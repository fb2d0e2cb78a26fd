"""An older version and the working tree side by side, on one database."""
