-- compatible: new columns, new indexes.

-- What an executor says that the work of a claimed run waits for, such as a node of its cluster. Its timeout counts
-- from the end of that wait.
ALTER TABLE runs ADD COLUMN waiting TEXT;

-- The weight of a workspace in lanes whose slots several workspaces want.
ALTER TABLE workspaces ADD COLUMN lane_weight REAL NOT NULL DEFAULT 1;
CREATE INDEX runs_of_owner ON runs (lane, requires, workspace, agent, due_at)
    WHERE state IN ('pending', 'retrying') AND is_pull = 0 AND losses = 0 AND due_at IS NOT NULL;

-- The workspace of a verification, so that the runs of one workspace to confirm are found without those of others.
-- Replicas of schema 16 leave it out.
ALTER TABLE verifications ADD COLUMN workspace TEXT;
UPDATE verifications SET workspace = (SELECT r.workspace FROM runs r WHERE r.id = verifications.run_id);
CREATE INDEX verifications_of_workspace ON verifications (workspace);
