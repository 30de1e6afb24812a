"""Where time is kept. `port.py` says what a database must do; `sqlite.py` and `postgres.py` do it."""
