"""The HTTP API: one file per group of routes, thin over the service layer."""
