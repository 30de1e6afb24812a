"""Where time is kept. `port.py` says what a database must do; `sqlite/` and `postgres/` do it."""
