"""What `wakeful --help` shows of every command, and the module that has it."""

from __future__ import annotations

from typing import Final, NamedTuple


class IndexEntry(NamedTuple):
    """A command or a group of commands."""

    name: str
    #: in this directory
    module: str
    panel: str
    #: the first sentence of its help
    summary: str


COMMANDS: Final = (
    # generated: commands (by `make generate`, from the commands)
    IndexEntry(
        "demo",
        "demo",
        "Server",
        "Start a server and an agent, run the agent every few seconds, and show the runs.",
    ),
    IndexEntry("serve", "serve", "Server", "Run the scheduler and the HTTP API."),
    IndexEntry(
        "worker",
        "serve",
        "Server",
        "Run the scheduler without the HTTP API: one more replica on the same database.",
    ),
    IndexEntry("migrate", "serve", "Server", "Create or upgrade the tables of the database."),
    IndexEntry("executor", "executor", "Server", "Execute the runs of pull jobs elsewhere."),
    IndexEntry(
        "open",
        "server",
        "Server",
        "Print a link that signs in to the dashboard, with the key that this command line uses.",
    ),
    IndexEntry(
        "status", "server", "Server", "Show the state of the server and its service level objectives."
    ),
    IndexEntry(
        "mcp", "server", "Server", "Serve MCP on stdin and stdout, for an agent that schedules its own work."
    ),
    IndexEntry(
        "workers",
        "server",
        "Server",
        "Show the processes that take runs, and the executors that hold claimed runs.",
    ),
    IndexEntry(
        "settings",
        "server",
        "Server",
        "Show the settings of the server and where they come from; of a secret, only whether it is set.",
    ),
    IndexEntry("list", "jobs", "Jobs", "Show the jobs of all agents, or of --agent."),
    IndexEntry(
        "show",
        "jobs",
        "Jobs",
        "Show a job: its definition, its next ticks, its open incidents and its last runs.",
    ),
    IndexEntry(
        "history",
        "jobs",
        "Jobs",
        "Show who changed which fields of a job, and when; or restore an earlier revision.",
    ),
    IndexEntry("add", "edit", "Jobs", "Add a job."),
    IndexEntry("edit", "edit", "Jobs", "Change a job: with options, or without them in an editor."),
    IndexEntry("pause", "job_state", "Jobs", "Pause jobs."),
    IndexEntry("resume", "job_state", "Jobs", "Resume jobs."),
    IndexEntry("skip-next", "job_state", "Jobs", "Skip the next tick of a job."),
    IndexEntry("toggle", "job_state", "Jobs", "Turn a job on (true) or off (false)."),
    IndexEntry("delete", "job_state", "Jobs", "Delete jobs and their runs that have not started."),
    IndexEntry(
        "rotate-secret",
        "job_state",
        "Jobs",
        "Replace the secret of a webhook; for a day, requests are signed with both secrets.",
    ),
    IndexEntry(
        "hook",
        "targets",
        "Jobs",
        "Create the trigger URL of a job: a POST to it runs the job, with the body as payload.",
    ),
    IndexEntry(
        "test-target",
        "targets",
        "Jobs",
        "Test the target of a job, of a job in a file, or one that options give.",
    ),
    IndexEntry("run", "run", "Runs", "Run jobs now, regardless of their schedule."),
    IndexEntry(
        "backfill", "run", "Runs", "Run a job for each tick of its schedule between two times in the past."
    ),
    IndexEntry(
        "runs", "runs", "Runs", "Show runs, newest first: all, those of a job, or one run with its attempts."
    ),
    IndexEntry("cancel", "runs", "Runs", "Cancel a run that is pending or retrying."),
    IndexEntry("stop", "runs", "Runs", "Stop a running run, on whichever replica it runs."),
    IndexEntry(
        "verify", "runs", "Runs", "Confirm the work of a run that waits to be verified, or reject it."
    ),
    IndexEntry("tail", "runs", "Runs", "Show runs as they start and end, one line per change, until Ctrl-C."),
    IndexEntry(
        "signal",
        "messages",
        "Runs",
        "Send a signal to an instance of an agent: a CloudEvent that becomes a run.",
    ),
    IndexEntry("say", "messages", "Runs", "Send a message to an agent."),
    IndexEntry(
        "sessions",
        "messages",
        "Runs",
        "Show the sessions of an agent, or one of them with what was said and answered.",
    ),
    IndexEntry(
        "chat", "chat", "Runs", "Talk to an agent: show the history, send messages, and show the answers."
    ),
    IndexEntry(
        "preview",
        "preview",
        "Jobs",
        "Show the next ticks of a schedule in its time zone and yours, with DST changes.",
    ),
    IndexEntry("apply", "apply", "Files", "Create and change jobs to match a file."),
    IndexEntry("import", "import_jobs", "Files", "Import jobs from cron, systemd, OpenClaw or Hermes."),
    IndexEntry(
        "dead-letters",
        "dead_letters",
        "Dead letters",
        "Show failed runs that were neither replayed nor discarded, newest first.",
    ),
    IndexEntry(
        "replay",
        "dead_letters",
        "Dead letters",
        "Run dead letters again, each as a new run with the same idempotency key.",
    ),
    IndexEntry("discard", "dead_letters", "Dead letters", "Remove runs from the dead letters."),
    IndexEntry("incidents", "incidents", "Dead letters", "Show the incidents, show one, or acknowledge one."),
    IndexEntry(
        "suggestions",
        "suggestions",
        "Jobs",
        "Show the suggestions for jobs, show one, or apply, dismiss or roll back one.",
    ),
    IndexEntry("inbox", "inbox", "Jobs", "Show what waits for a person, approve it or reject it."),
    IndexEntry("agents", "agents", "Administration", "Agents: list, show, put, set, rotate-secret, delete."),
    IndexEntry(
        "instances",
        "instances",
        "Administration",
        "Instances of agents: list, show, start, stop, pause, resume, hibernate, delete.",
    ),
    IndexEntry("keys", "admin", "Administration", "API keys: create, list, revoke, export."),
    IndexEntry("channels", "admin", "Administration", "Channels that output and alerts go to: list, test."),
    IndexEntry("subscriptions", "admin", "Administration", "Subscriptions to MCP events: list, end."),
    IndexEntry("audit", "admin", "Administration", "The audit log: list, verify."),
    IndexEntry(
        "peaks",
        "usage",
        "Administration",
        "Show when many jobs start in the coming week, and quieter minutes nearby.",
    ),
    IndexEntry(
        "cost",
        "usage",
        "Administration",
        "Show what runs used by day, agent and job, and what is left of the budgets today.",
    ),
    IndexEntry(
        "doctor",
        "doctor",
        "Server",
        "Check the server, its database and the work that waits, and say what to do.",
    ),
    IndexEntry(
        "backup", "backup", "Server", "Back up the database to a new file, also while servers use it."
    ),
    IndexEntry("help", "about", "Command line", "Show the help of a command, as `--help` after it does."),
    IndexEntry("version", "about", "Command line", "Show the version of this command line, and of Python."),
    IndexEntry(
        "completion",
        "about",
        "Command line",
        "Print the script that completes commands, options and job names in a shell.",
    ),
    # generated: end
)
