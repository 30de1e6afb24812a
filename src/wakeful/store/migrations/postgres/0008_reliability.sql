-- Columns and tables for executor leases, counted attempts, recorded responses and pauses.

-- When the executor that claimed this run last sent a heartbeat for it. NULL: a worker of a replica holds the
-- run, and its row in `workers` says when it was last heard of. Not indexed: a heartbeat stays within its page.
ALTER TABLE runs ADD COLUMN beat_at timestamptz;
