"""The executor for Kubernetes: it claims the runs of `pull` jobs, and executes each attempt as one Job.

- `templates`: the Job of a run. Pure.
- `states`: what the status of a Job and its pods means. Pure.
- `api`: the requests to the API server.
- `watcher`: the state of all Jobs, by one list and one watch.
- `executor`: creates, follows and deletes Jobs; adopts those of its predecessor.
"""
