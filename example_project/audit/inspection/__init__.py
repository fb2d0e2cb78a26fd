"""Looking at installed distributions: plain Python, no Django, no database."""
