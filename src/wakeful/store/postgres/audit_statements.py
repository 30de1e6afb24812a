"""The parts of statements that append to the audit. See `changelog`."""

from __future__ import annotations

from wakeful.store.sql.audit import ENTRY_COLUMNS


def lock_audit_heads(first: int) -> str:
    """Return the part `locked` of a statement: the heads that are as given. By their primary key, each.

    Its parameters are those of `audit_parameters`, from number `first` on, here and below.
    """
    return f"""locked AS MATERIALIZED (
        SELECT n.workspace
        FROM unnest(${first + 1}::text[], ${first + 2}::bigint[], ${first + 3}::text[])
            n (workspace, seq, hash)
        CROSS JOIN LATERAL (
            SELECT FROM audit_heads h
            WHERE h.workspace = n.workspace AND h.seq = n.seq AND h.hash = n.hash FOR UPDATE) h)"""


def append_to_audit(first: int) -> str:
    """Return the parts of a statement that write entries and move their heads if `checked` is ok."""
    return f"""written AS (
        INSERT INTO audit ({ENTRY_COLUMNS}) SELECT {ENTRY_COLUMNS} FROM unnest(${first}::new_entry[])
        WHERE (SELECT ok FROM checked)),
    moved AS (
        UPDATE audit_heads h SET seq = n.seq, hash = n.hash
        FROM unnest(${first + 1}::text[], ${first + 4}::bigint[], ${first + 5}::text[])
            n (workspace, seq, hash)
        WHERE h.workspace = n.workspace AND (SELECT ok FROM checked))"""
