"""The use cases: what can be done with jobs and runs, once, for every face."""
