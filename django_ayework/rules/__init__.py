"""Pure decisions: values in, values out. No Django, no clock, no randomness of its own."""
