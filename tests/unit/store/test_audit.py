"""The chain of the audit: whatever is changed, removed or moved in it is found, and the first is named."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from wakeful.store.audit import AuditEntry, AuditRow, flaw, link

texts = st.text(st.characters(exclude_characters="\x00"), max_size=12)
entries = st.builds(AuditEntry, st.just("acme"), texts, texts, texts, texts, st.none() | texts)


def chained(of: list[AuditEntry]) -> list[AuditRow]:
    rows: list[AuditRow] = []
    for seq, entry in enumerate(of, 1):
        rows.append(link(entry, seq, 1000 + seq, rows[-1].hash if rows else ""))
    return rows


chains = st.lists(entries, min_size=1, max_size=8).map(chained)


@given(chains, st.data())
def test_a_chain_is_whole_and_so_is_every_page_of_it(rows: list[AuditRow], data: st.DataObject) -> None:
    assert flaw(rows, 0, "") is None
    cut = data.draw(st.integers(0, len(rows)))
    assert flaw(rows[:cut], 0, "") is None
    assert flaw(rows[cut:], cut, rows[cut - 1].hash if cut else "") is None


@given(chains, st.data())
def test_a_changed_entry_is_named(rows: list[AuditRow], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(rows) - 1))
    field = data.draw(
        st.sampled_from([name for name in AuditRow._fields if name not in ("workspace", "seq")])
    )
    old = getattr(rows[place], field)
    other: st.SearchStrategy[Any] = st.integers() if field == "at_ms" else texts
    if field == "address":
        other = other | st.none()
    new = data.draw(other.filter(lambda value: value != old))
    rows[place] = rows[place]._replace(**{field: new})
    assert f"entry {place + 1} was changed" in (flaw(rows, 0, "") or "")


@given(chains, entries, st.data())
def test_a_changed_entry_with_a_new_hash_does_not_match_the_next(
    rows: list[AuditRow], entry: AuditEntry, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(rows) - 1))
    new = link(entry, place + 1, 5, rows[place].before)
    rows[place] = new
    found = flaw(rows, 0, "")
    if place == len(rows) - 1:  # nothing follows it: who has its hash noted elsewhere finds it
        assert found is None
    else:
        assert found is not None
        assert f"entry {place + 1} was changed" in found


@given(chains, st.data())
def test_an_entry_that_was_removed_is_named(rows: list[AuditRow], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(rows) - 1))
    del rows[place]
    found = flaw(rows, 0, "")
    assert (found or "").startswith(f"entry {place + 1} is missing") is (place < len(rows))


@given(chains.filter(lambda rows: len(rows) > 1), st.data())
def test_swapped_entries_are_found_at_the_first(rows: list[AuditRow], data: st.DataObject) -> None:
    one, other = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=2, max_size=2)))
    rows[one], rows[other] = rows[other], rows[one]
    assert f"entry {one + 1} is missing: entry {other + 1} stands in its place" == flaw(rows, 0, "")


def test_an_entry_that_comes_twice_is_out_of_order() -> None:
    rows = chained([_said("a"), _said("b")])
    assert flaw([*rows, rows[1]], 0, "") == "entry 2 is out of order: it stands where entry 3 should be"


def test_the_first_entry_follows_none() -> None:
    row = link(_said("a"), 1, 0, "0" * 64)
    assert flaw([row], 0, "") == "entry 1 was changed: it is the first, and yet follows another"


def test_the_chain_of_one_workspace_holds_nothing_of_another() -> None:
    first = link(_said("a"), 1, 0, "")
    second = link(_said("b")._replace(workspace="other"), 2, 0, first.hash)
    assert flaw([first, second], 0, "") == "entry 2 is of the workspace 'other', and not of 'acme'"


@given(entries, entries)
def test_no_two_entries_share_a_hash(one: AuditEntry, other: AuditEntry) -> None:
    assert (link(one, 1, 0, "").hash == link(other, 1, 0, "").hash) is (one == other)


def test_text_that_moves_between_fields_changes_the_hash() -> None:
    one = AuditEntry("acme", "ada", "run", "x", "{}", None)
    for other in (
        one._replace(actor="adar", action="un"),
        one._replace(address=""),
        one._replace(address="null"),
    ):
        assert link(other, 1, 0, "").hash != link(one, 1, 0, "").hash


def test_the_hash_is_as_documented() -> None:
    row = link(_said('häßlich "🦉"'), 7, 1_800_000_000_000, "ab")
    told = json.dumps(
        ["acme", 7, 1_800_000_000_000, "key:1", "job.create", 'häßlich "🦉"', "{}", None, "ab"],
        separators=(",", ":"),
    )
    assert row.hash == hashlib.sha256(told.encode("ascii")).hexdigest()


def test_characters_that_cannot_be_stored_are_replaced_before_hashing() -> None:
    for unfit in (0, 0xD800, 0xDFFF):
        row = link(AuditEntry("acme", f"jwt:a{chr(unfit)}b", "x", "y", "{}", chr(unfit)), 1, 0, "")
        assert (row.actor, row.address) == ("jwt:a\ufffdb", "\ufffd")
        assert flaw([row], 0, "") is None


def _said(subject: str) -> AuditEntry:
    return AuditEntry("acme", "key:1", "job.create", subject, "{}", None)
