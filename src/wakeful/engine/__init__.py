"""The engine: the loops, without rules of their own. `engine.py` starts the loops."""
