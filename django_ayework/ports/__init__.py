"""The replaceable parts of the engine: each is a small protocol with implementations."""
