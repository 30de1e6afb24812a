"""Read crontabs as cron does, and turn their lines into jobs."""

from wakeful.cli.crontab.documents import Planned, plan
from wakeful.cli.crontab.reader import Crontab, Entry, Remark, read_crontab

__all__ = ["Crontab", "Entry", "Planned", "Remark", "plan", "read_crontab"]
