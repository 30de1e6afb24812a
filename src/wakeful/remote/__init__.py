"""Workers outside the server: they claim the runs of `pull` jobs over HTTP and report the outcomes.

```python
from wakeful.remote import Worker

worker = Worker("https://wakeful.example", "wk_…")


@worker.function("summarise")
async def summarise(run):
    return f"a summary of {run.payload['message']}"


worker.run()
```
"""

from typing import TYPE_CHECKING

from wakeful.errors import Permanent
from wakeful.values.package import lazy_names

if TYPE_CHECKING:
    from wakeful.remote.handlers import Result
    from wakeful.remote.worker import Worker, WorkerConfig

__all__ = ["Permanent", "Result", "Worker", "WorkerConfig"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {"wakeful.remote.handlers": ["Result"], "wakeful.remote.worker": ["Worker", "WorkerConfig"]},
    )
