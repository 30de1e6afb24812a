"""Cron expressions in time zones. Can be used alone: `from wakeful.cron import Cron`.

Priorities: correct, readable, small, fast, in this order. See `Cron`.
"""

from wakeful.cron.evaluator import Cron
from wakeful.cron.pieces import DstGap, DstOverlap
from wakeful.cron.zone import zone

__all__ = ["Cron", "DstGap", "DstOverlap", "zone"]
