"""The store over an SQL database: one facade, with operations for SQLite and for PostgreSQL."""

from __future__ import annotations
