-- compatible: new tables, a new column, new indexes.

-- The live runs of a workspace or agent, to count them.
CREATE INDEX runs_live ON runs (workspace, agent) WHERE state IN ('pending', 'retrying', 'running');
