"""The database layer. `port.py` and `sql/` are the store and its contract, over `sqlite/` or `postgres/`."""
