"""Wakeful in a Django project: `INSTALLED_APPS = [..., "wakeful.integrations.django"]`.

```python
from wakeful.integrations.django import app  # in wakeful_jobs.py of an app of the project


@app.cron("0 7 * * *")
def send_digests(): ...
```

`app` is a `Wakeful` on the database of the project. `manage.py wakeful serve` runs it; other processes of the
project enqueue work with `app.sync`. The dictionary `WAKEFUL` in the settings has the arguments of `Wakeful`,
and `database`, `schema` or `url` for another database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wakeful.app.embedded import Wakeful

    #: the scheduler of the project
    app: Wakeful
    #: the same, with the options of the command that loads it: `wakeful serve --app`
    served_app: Wakeful


def __getattr__(name: str) -> object:
    """Create `app` when it is first used: Django imports this package before the settings are complete."""
    if name in ("app", "served_app"):
        from wakeful.integrations.django import scheduler

        return scheduler.project_scheduler() if name == "app" else scheduler.served_scheduler()
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
