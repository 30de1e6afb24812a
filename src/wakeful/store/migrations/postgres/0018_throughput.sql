-- compatible: new tables, a new column, new indexes.

-- Indexes of large tables that are built after the migration, without a lock on writes.
CREATE TABLE pending_indexes (
    name      text NOT NULL PRIMARY KEY,
    statement text NOT NULL
);

-- The live runs of a workspace or agent, to count them. Replicas of schema 16 left the owner out.
UPDATE live_runs l SET workspace = r.workspace, agent = r.agent FROM runs r
WHERE r.id = l.run_id AND l.workspace IS NULL;
CREATE INDEX CONCURRENTLY live_runs_of_workspace ON live_runs (workspace, agent);
