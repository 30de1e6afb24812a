"""The command line, `wakeful`: a client of the HTTP API.

`commands/` calls the server and formats the result for a terminal; `--json` prints the data as JSON.
Modules next to it have what several commands share.
"""

from wakeful.cli.main import main

__all__ = ["main"]
