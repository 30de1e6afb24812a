"""`wakeful open`: a one-time link that signs in to the dashboard."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli.session import Session, command


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "open",
        examples=(
            "wakeful open",
            "wakeful open --browser",
        ),
        panel="Server",
    )
    async def open_dashboard(
        s: Session,
        browser: Annotated[bool, typer.Option("--browser", help="open it in a browser")] = False,
    ) -> None:
        """Print a link that signs in to the dashboard, with the key that this command line uses.

        The link works once, for five minutes.
        """
        link = await s.out.wait_for(s.client.sign_in_link())
        s.out.show(link, Text(str(link["url"])))
        s.out.say(Text("it works once, for 5 minutes", "dim"))
        if browser:
            import webbrowser

            if not webbrowser.open(str(link["url"])):
                s.out.warn("no browser was found; open the link yourself")
