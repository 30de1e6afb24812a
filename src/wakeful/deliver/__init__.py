"""Delivers messages to people through channels that the operator configures."""
