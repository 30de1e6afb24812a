"""What `wakeful --help` shows of every command, and the module that has it."""

from __future__ import annotations

from typing import Final, NamedTuple


class Entry(NamedTuple):
    """A command or a group of commands."""

    name: str
    #: in this directory
    module: str
    panel: str
    #: the first sentence of its help
    summary: str


COMMANDS: Final = (
    # generated: commands (by `make generate`, from the commands)
    Entry(
        "demo",
        "demo",
        "Server",
        "Start a server and an agent, run the agent every few seconds, and show the runs.",
    ),
    Entry("serve", "serve", "Server", "Run the scheduler and the HTTP API."),
    Entry(
        "worker",
        "serve",
        "Server",
        "Run the scheduler without the HTTP API: one more replica on the same database.",
    ),
    Entry("migrate", "serve", "Server", "Create or upgrade the tables of the database."),
    Entry("executor", "executor", "Server", "Execute the runs of pull jobs elsewhere."),
    Entry(
        "open",
        "server",
        "Server",
        "Print a link that signs in to the dashboard, with the key that this command line uses.",
    ),
    Entry("status", "server", "Server", "Show the state of the server and its service level objectives."),
    Entry(
        "mcp", "server", "Server", "Serve MCP on stdin and stdout, for an agent that schedules its own work."
    ),
    Entry(
        "workers",
        "server",
        "Server",
        "Show the processes that take runs, and the executors that hold claimed runs.",
    ),
    Entry(
        "settings",
        "server",
        "Server",
        "Show the settings of the server and where they come from; of a secret, only whether it is set.",
    ),
    Entry("list", "jobs", "Jobs", "Show the jobs of all agents, or of --agent."),
    Entry(
        "show",
        "jobs",
        "Jobs",
        "Show a job: its definition, its next ticks, its open incidents and its last runs.",
    ),
    Entry(
        "history",
        "jobs",
        "Jobs",
        "Show who changed which fields of a job, and when; or restore an earlier revision.",
    ),
    Entry("add", "edit", "Jobs", "Add a job."),
    Entry("edit", "edit", "Jobs", "Change a job: with options, or without them in an editor."),
    Entry("pause", "job_state", "Jobs", "Pause jobs."),
    Entry("resume", "job_state", "Jobs", "Resume jobs."),
    Entry("skip-next", "job_state", "Jobs", "Skip the next tick of a job."),
    Entry("toggle", "job_state", "Jobs", "Turn a job on (true) or off (false)."),
    Entry("delete", "job_state", "Jobs", "Delete jobs and their runs that have not started."),
    Entry(
        "rotate-secret",
        "job_state",
        "Jobs",
        "Replace the secret of a webhook; for a day, requests are signed with both secrets.",
    ),
    Entry(
        "hook",
        "targets",
        "Jobs",
        "Create the trigger URL of a job: a POST to it runs the job, with the body as payload.",
    ),
    Entry(
        "test-target",
        "targets",
        "Jobs",
        "Test the target of a job, of a job in a file, or one that options give.",
    ),
    Entry("run", "run", "Runs", "Run jobs now, regardless of their schedule."),
    Entry(
        "backfill", "run", "Runs", "Run a job for each tick of its schedule between two times in the past."
    ),
    Entry(
        "runs", "runs", "Runs", "Show runs, newest first: all, those of a job, or one run with its attempts."
    ),
    Entry("cancel", "runs", "Runs", "Cancel a run that is pending or retrying."),
    Entry("stop", "runs", "Runs", "Stop a running run, on whichever replica it runs."),
    Entry("verify", "runs", "Runs", "Confirm the work of a run that waits to be verified, or reject it."),
    Entry("tail", "runs", "Runs", "Show runs as they start and end, one line per change, until Ctrl-C."),
    Entry(
        "signal",
        "messages",
        "Runs",
        "Send a signal to an instance of an agent: a CloudEvent that becomes a run.",
    ),
    Entry("say", "messages", "Runs", "Send a message to an agent."),
    Entry(
        "sessions",
        "messages",
        "Runs",
        "Show the sessions of an agent, or one of them with what was said and answered.",
    ),
    Entry("chat", "chat", "Runs", "Talk to an agent: show the history, send messages, and show the answers."),
    Entry(
        "preview",
        "preview",
        "Jobs",
        "Show the next ticks of a schedule in its time zone and yours, with DST changes.",
    ),
    Entry("apply", "apply", "Files", "Create and change jobs to match a file."),
    Entry("import", "import_jobs", "Files", "Import jobs from cron, systemd, OpenClaw or Hermes."),
    Entry(
        "dead-letters",
        "dead_letters",
        "Dead letters",
        "Show failed runs that were neither replayed nor discarded, newest first.",
    ),
    Entry(
        "replay",
        "dead_letters",
        "Dead letters",
        "Run dead letters again, each as a new run with the same idempotency key.",
    ),
    Entry("discard", "dead_letters", "Dead letters", "Remove runs from the dead letters."),
    Entry("incidents", "incidents", "Dead letters", "Show the incidents, show one, or acknowledge one."),
    Entry(
        "suggestions",
        "suggestions",
        "Jobs",
        "Show the suggestions for jobs, show one, or apply, dismiss or roll back one.",
    ),
    Entry("agents", "agents", "Administration", "Agents: list, show, put, set, rotate-secret, delete."),
    Entry(
        "instances",
        "instances",
        "Administration",
        "Instances of agents: list, show, start, stop, pause, resume, hibernate.",
    ),
    Entry("keys", "admin", "Administration", "API keys: create, list, revoke, export."),
    Entry("channels", "admin", "Administration", "Channels that output and alerts go to: list, test."),
    Entry("audit", "admin", "Administration", "The audit log: list, verify."),
    Entry(
        "peaks",
        "usage",
        "Administration",
        "Show when many jobs start in the coming week, and quieter minutes nearby.",
    ),
    Entry(
        "cost",
        "usage",
        "Administration",
        "Show what runs used by day, agent and job, and what is left of the budgets today.",
    ),
    Entry(
        "doctor",
        "doctor",
        "Server",
        "Check the server, its database and the work that waits, and say what to do.",
    ),
    # generated: end
)
