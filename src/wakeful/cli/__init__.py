"""The command line, `wakeful`: a client of the HTTP API.

`commands/` calls the server, `show/` formats the result for a terminal; `--json` prints the data as JSON.
"""

from wakeful.cli.main import main

__all__ = ["main"]
