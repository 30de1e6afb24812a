"""Read the jobs of other schedulers, and turn them into jobs of Wakeful.

A reader (`crontab`, `systemd_timers`, `agent_jobs`) returns entries, and remarks on what it could not
convert. `planner` turns entries into job documents. `run` has the server check the documents, and
saves them.
"""
