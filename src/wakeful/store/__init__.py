"""The database layer. `port.py` is the contract; `sql/`, `sqlite/` and `postgres/` implement it."""
