from hypothesis import settings

# A busy machine is no reason to fail. Examples are drawn anew in each run, so many runs try many.
settings.register_profile("unhurried", deadline=None, max_examples=50)
settings.load_profile("unhurried")
