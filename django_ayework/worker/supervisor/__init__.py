"""Several worker processes on one host, kept alive by one that does no work itself."""
