"""Celery beat on Wakeful: `beat_scheduler = "wakeful.celery:Scheduler"`."""

from wakeful.celery.scheduler import Scheduler

__all__ = ["Scheduler"]
