"""What a tick becomes, what an outcome means, and what follows from it. Pure.

The store writes what is decided here, and the engine executes it.
"""
