"""The app of `INSTALLED_APPS`, which imports the jobs of the project."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class WakefulConfig(AppConfig):  # type: ignore[misc]
    """Imports the module `wakeful_jobs` of each installed app."""

    name = "wakeful.integrations.django"
    label = "wakeful"
    verbose_name = "Wakeful"

    def ready(self) -> None:
        """Import the modules: their decorators declare the jobs."""
        autodiscover_modules("wakeful_jobs")
