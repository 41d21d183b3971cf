from hypothesis import settings

# No deadline: a busy machine is no bug. What fails is found again by its seed, which Hypothesis prints.
settings.register_profile("flumina", deadline=None, print_blob=True)
settings.load_profile("flumina")
