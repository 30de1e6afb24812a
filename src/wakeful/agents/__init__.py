"""Agents: their conversations. What is said to one waits in a session, and becomes a turn."""
