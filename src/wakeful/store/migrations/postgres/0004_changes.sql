-- The log of changes (`watching.py`): one row for each kind of thing that a transaction changed.
--
-- Transactions do not commit in the order in which they took a number, so whoever writes takes none that
-- readers go by: `id` only keeps apart and in order what one transaction after another wrote. A reader gives
-- the rows that it finds their numbers (`seq`: that of the row's last change), one reader at a time, and from
-- then on they stay. Nothing that writes runs waits for that, and it costs nothing while nobody reads.

CREATE TABLE changes (
    id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    seq   bigint,
    at    timestamptz NOT NULL,
    kind  text        COLLATE "C" NOT NULL,
    count integer     NOT NULL,
    items text        COLLATE "C" NOT NULL
) WITH (fillfactor = 80);

-- Ids hardly get smaller by compressing them.
ALTER TABLE changes ALTER COLUMN items SET STORAGE EXTERNAL;

CREATE UNIQUE INDEX changes_seq ON changes (seq) WHERE seq IS NOT NULL;
CREATE INDEX changes_new ON changes (id) WHERE seq IS NULL;

-- One row: the last number that was given. Whoever gives numbers locks it.
CREATE TABLE changes_head (
    last bigint NOT NULL
);

INSERT INTO changes_head VALUES (0);
