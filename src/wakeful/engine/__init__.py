"""The engine: one loop per file, without rules of its own. `engine.py` starts the loops."""
