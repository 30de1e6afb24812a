"""The faces that programs talk to: HTTP, and what else comes over the wire."""
