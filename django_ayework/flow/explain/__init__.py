"""Explaining why a work is not running: the facts are read here, the words are made by the rules."""
