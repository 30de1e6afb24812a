"""The tool `cron` of agents: its actions, what it accepts as arguments, and what it answers.

It is a use case over a `Scheduler` (`port`): the services of this process, or a server over HTTP.
"""
