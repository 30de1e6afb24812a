"""Wakeful: cron for agents. It keeps time in a database and wakes the agent."""

from wakeful.errors import InvalidArgument, InvalidSchedule, Permanent, WakefulError

__version__ = "0.1.0"

__all__ = ["InvalidArgument", "InvalidSchedule", "Permanent", "WakefulError", "__version__"]
