"""What the engine uses and a project may replace: each is a small protocol with implementations."""
