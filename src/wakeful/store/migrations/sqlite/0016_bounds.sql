-- compatible: new columns with a default.
--
-- Bounds that hold under concurrency and across crashes.

-- The last tick of the job that has a record (a run, a skipped or a missed row); resuming and editing continue
-- after it.
ALTER TABLE jobs ADD COLUMN decided_at INTEGER;

-- How often the run was lost together with other runs of the same worker, in a row.
ALTER TABLE runs ADD COLUMN losses INTEGER NOT NULL DEFAULT 0;

-- The claim that gave the run to its executor, as the executor or the server named it. A claim whose response
-- is lost is returned by this name.
ALTER TABLE runs ADD COLUMN claim_id TEXT;
