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


#: the summaries of commands, by module and panel
_SUMMARIES: Final = {
    # generated: commands (by `make generate`, from the commands)
    ("demo", "Server"): {
        "demo": "Start a server and an agent, run the agent every few seconds, and show the runs.",
    },
    ("serve", "Server"): {
        "serve": "Run the scheduler and the HTTP API.",
        "worker": "Run the scheduler without the HTTP API: one more replica on the same database.",
        "migrate": "Create or upgrade the tables of the database.",
    },
    ("executor", "Server"): {
        "executor": "Execute the runs of pull jobs elsewhere.",
    },
    ("server", "Server"): {
        "open": "Print a link that signs in to the dashboard, with the key that this command line uses.",
        "status": "Show the state of the server and its service level objectives.",
        "mcp": "Serve MCP on stdin and stdout, for an agent that schedules its own work.",
        "workers": "Show the processes that take runs, and the executors that hold claimed runs.",
        "settings": (
            "Show the settings of the server and where they come from; of a secret, only whether it is set."
        ),
    },
    ("jobs", "Jobs"): {
        "list": "Show the jobs of all agents, or of --agent.",
        "show": "Show a job: its definition, its next ticks, its open incidents and its last runs.",
        "history": "Show who changed which fields of a job, and when; or restore an earlier revision.",
    },
    ("edit", "Jobs"): {
        "add": "Add a job.",
        "edit": "Change a job: with options, or without them in an editor.",
    },
    ("job_state", "Jobs"): {
        "pause": "Pause jobs.",
        "resume": "Resume jobs.",
        "skip-next": "Skip the next tick of a job.",
        "toggle": "Turn a job on (true) or off (false).",
        "delete": "Delete jobs and their runs that have not started.",
        "rotate-secret": "Replace the secret of a webhook; for a day, requests are signed with both secrets.",
    },
    ("targets", "Jobs"): {
        "hook": "Create the trigger URL of a job: a POST to it runs the job, with the body as payload.",
        "test-target": "Test the target of a job, of a job in a file, or one that options give.",
    },
    ("run", "Runs"): {
        "run": "Run jobs now, regardless of their schedule.",
        "backfill": "Run a job for each tick of its schedule between two times in the past.",
    },
    ("runs", "Runs"): {
        "runs": "Show runs, newest first: all, those of a job, or one run with its attempts.",
        "cancel": "Cancel a run that is pending or retrying.",
        "stop": "Stop a running run, on whichever replica it runs.",
        "verify": "Confirm the work of a run that waits to be verified, or reject it.",
        "tail": "Show runs as they start and end, one line per change, until Ctrl-C.",
    },
    ("messages", "Runs"): {
        "signal": "Send a signal to an instance of an agent: a CloudEvent that becomes a run.",
        "say": "Send a message to an agent.",
        "sessions": "Show the sessions of an agent, or one of them with what was said and answered.",
    },
    ("chat", "Runs"): {
        "chat": "Talk to an agent: show the history, send messages, and show the answers.",
    },
    ("preview", "Jobs"): {
        "preview": "Show the next ticks of a schedule in its time zone and yours, with DST changes.",
    },
    ("apply", "Files"): {
        "apply": "Create and change jobs to match a file.",
    },
    ("import_jobs", "Files"): {
        "import": "Import jobs from cron, systemd, OpenClaw or Hermes.",
    },
    ("dead_letters", "Dead letters"): {
        "dead-letters": "Show failed runs that were neither replayed nor discarded, newest first.",
        "replay": "Run dead letters again, each as a new run with the same idempotency key.",
        "discard": "Remove runs from the dead letters.",
    },
    ("incidents", "Dead letters"): {
        "incidents": "Show the incidents, show one, or acknowledge one.",
    },
    ("suggestions", "Jobs"): {
        "suggestions": "Show the suggestions for jobs, show one, or apply, dismiss or roll back one.",
    },
    ("inbox", "Jobs"): {
        "inbox": "Show what waits for a person, approve it or reject it.",
    },
    ("agents", "Administration"): {
        "agents": "Agents: list, show, put, set, rotate-secret, delete.",
    },
    ("instances", "Administration"): {
        "instances": "Instances of agents: list, show, start, stop, pause, resume, hibernate, delete.",
    },
    ("admin", "Administration"): {
        "keys": "API keys: create, list, revoke, export.",
        "channels": "Channels that output and alerts go to: list, test.",
        "subscriptions": "Subscriptions to MCP events: list, end.",
        "audit": "The audit log: list, verify.",
    },
    ("usage", "Administration"): {
        "peaks": "Show when many jobs start in the coming week, and quieter minutes nearby.",
        "cost": "Show what runs used by day, agent and job, and what is left of the budgets today.",
    },
    ("doctor", "Server"): {
        "doctor": "Check the server, its database and the work that waits, and say what to do.",
    },
    ("backup", "Server"): {
        "backup": "Back up the database to a new file, also while servers use it.",
    },
    ("about", "Command line"): {
        "help": "Show the help of a command, as `--help` after it does.",
        "version": "Show the version of this command line, and of Python.",
        "completion": "Print the script that completes commands, options and job names in a shell.",
    },
    # generated: end
}
COMMANDS: Final = tuple(
    IndexEntry(name, module, panel, summary)
    for (module, panel), commands in _SUMMARIES.items()
    for name, summary in commands.items()
)
