"""Formatting for the terminal: pure functions, no I/O."""
