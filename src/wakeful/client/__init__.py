"""Wakeful over the network: what `Wakeful` does in a process, done by a server.

```python
from wakeful import AsyncClient

async with AsyncClient() as client:  # WAKEFUL_URL and WAKEFUL_KEY, or the server on this machine
    await client.jobs.upsert("digest", schedule="0 7 * * *", webhook_url="https://…")
    run = await client.jobs.run("digest")
    print((await client.runs.wait(run["id"]))["state"])
```

`Client` is the same for programs without an event loop: `with Client() as client:`, and no `await`.

Names are those of the embedded API; what comes back is the JSON that the server shows. What it refuses is
raised as the error that the embedded API raises, with the same sentence.
"""

from wakeful.client.api_key_file import key_file
from wakeful.client.client import AsyncClient
from wakeful.client.connection import Page
from wakeful.client.jobs import Jobs
from wakeful.client.runs import Runs
from wakeful.client.sync import Client
from wakeful.client.types import AgentShape, AuditShape, EventShape, JobShape, KeyShape, RunShape

__all__ = [
    "AgentShape",
    "AsyncClient",
    "AuditShape",
    "Client",
    "EventShape",
    "JobShape",
    "Jobs",
    "KeyShape",
    "Page",
    "RunShape",
    "Runs",
    "key_file",
]
