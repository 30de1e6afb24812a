"""The command line: `wakeful`. It asks a server, and shows what it says.

A command calls (`commands/`), and something else shows (`show/`): every command says the same as JSON.
"""

from wakeful.cli.main import main

__all__ = ["main"]
