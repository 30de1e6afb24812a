"""Launchers: one target a file. `port.py` says what a launcher gets, what it answers and what it must do."""
