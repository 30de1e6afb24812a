"""The error for what the operator does not allow."""

from __future__ import annotations

from wakeful.errors import InvalidArgument


class NotAllowed(InvalidArgument):
    """A program, a variable or a task that the operator does not allow."""
