"""Suggestions for jobs, and what they follow from. Pure."""
