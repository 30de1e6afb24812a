"""Launchers: one target per file. `port.py` is the contract of a launcher."""
