"""Wakeful: cron for agents. It keeps time in a database and wakes the agent."""

__version__ = "0.1.0"
