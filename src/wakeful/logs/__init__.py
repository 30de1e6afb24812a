"""Structured logs: events with fields, redaction, and the formats of a server.

`log.info("run.skipped", reason="overlap", run_id=…)` goes through the standard library's loggers. A program
that embeds Wakeful configures the loggers `wakeful.…` by `logging`, as with any library: importing Wakeful
configures nothing. `wakeful.logs.setup` configures the process of `wakeful serve` and `wakeful worker`.

Events name the things that they concern by the same fields: `run_id`, `job_id`, `job` (its name), `agent`,
`workspace`, `attempt`, `worker` and, with tracing, `trace_id`. `docs/reference/logs.md` lists all events.
"""

from wakeful.logs.events import LogEvent, escape, get_logger

__all__ = ["LogEvent", "escape", "get_logger"]
