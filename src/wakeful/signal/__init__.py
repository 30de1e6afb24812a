"""Signals: CloudEvents, their patterns, and how requests are read as signals. Pure."""
