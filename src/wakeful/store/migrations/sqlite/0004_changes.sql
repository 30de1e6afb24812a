-- The log of changes (`watching.py`): one row for each kind of thing that a transaction changed.
-- `seq` is the number of the row's last change, so the next row's is larger by its own count.

CREATE TABLE changes (
    seq   INTEGER NOT NULL PRIMARY KEY,
    at    INTEGER NOT NULL,
    kind  TEXT    NOT NULL,
    count INTEGER NOT NULL,
    items TEXT    NOT NULL
);
