"""Cron expressions in time zones, usable alone: `from wakeful.cron import Cron`.

Correct first, then readable, then small, then fast. See `Cron`.
"""

from wakeful.cron.evaluator import Cron
from wakeful.cron.pieces import DstGap, DstOverlap
from wakeful.cron.zone import zone

__all__ = ["Cron", "DstGap", "DstOverlap", "zone"]
