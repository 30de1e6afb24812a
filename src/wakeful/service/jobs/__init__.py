"""Use cases for jobs: create, change, pause, delete."""
