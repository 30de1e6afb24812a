"""Wakeful embedded in a Python program, with its functions as targets.

```python
from wakeful import Wakeful, Webhook

app = Wakeful("sqlite:///wakeful.db")  # or postgresql://…


@app.cron("0 9 * * 1-5", tz="Europe/Berlin")  # also app.every("5m"), app.at(...)
async def standup(run): ...


async with app:
    await app.jobs.upsert("digest", schedule="0 7 * * *", target=Webhook("https://…"))
    await app.serve_forever()
```
"""

from typing import TYPE_CHECKING

from wakeful.app.embedded import Wakeful
from wakeful.values.package import lazy_names

if TYPE_CHECKING:
    from wakeful.app.jobs import Jobs
    from wakeful.app.runs import Runs
    from wakeful.model.job_fields import JobFields, JobOptions, JobPatch

__all__ = ["JobFields", "JobOptions", "JobPatch", "Jobs", "Runs", "Wakeful"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "wakeful.app.jobs": ["Jobs"],
            "wakeful.app.runs": ["Runs"],
            "wakeful.model.job_fields": ["JobFields", "JobOptions", "JobPatch"],
        },
    )
