"""Wakeful over the network: the interface of `Wakeful`, implemented by requests to a server.

```python
from wakeful import AsyncClient

async with AsyncClient() as client:  # WAKEFUL_URL and WAKEFUL_KEY, or the server on this machine
    await client.jobs.upsert("digest", schedule="0 7 * * *", webhook_url="https://…")
    run = await client.jobs.run("digest")
    print((await client.runs.wait(run.id)).state)
```

`Client` is the same for programs without an event loop: `with Client() as client:`, and no `await`.

Both return the types of `wakeful.model` and raise the errors of the embedded API with the same messages.
"""

from typing import TYPE_CHECKING

from wakeful.values.package import lazy_names

if TYPE_CHECKING:
    from wakeful.client.api_key_file import key_file
    from wakeful.client.client import AsyncClient
    from wakeful.client.jobs import Jobs
    from wakeful.client.runs import Runs
    from wakeful.client.sync_client import Client

__all__ = ["AsyncClient", "Client", "Jobs", "Runs", "key_file"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "wakeful.client.api_key_file": ["key_file"],
            "wakeful.client.client": ["AsyncClient"],
            "wakeful.client.jobs": ["Jobs"],
            "wakeful.client.runs": ["Runs"],
            "wakeful.client.sync_client": ["Client"],
        },
    )
