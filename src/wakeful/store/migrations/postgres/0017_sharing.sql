-- compatible: new columns, new indexes.

-- What an executor says that the work of a claimed run waits for, such as a node of its cluster. Its timeout counts
-- from the end of that wait.
ALTER TABLE runs ADD COLUMN waiting text;

-- The weight of a workspace in lanes whose slots several workspaces want. For that, `live_runs` has the owner of
-- every run. Replicas of schema 16 leave it out, so those runs are one more group.
ALTER TABLE workspaces ADD COLUMN lane_weight double precision NOT NULL DEFAULT 1;
UPDATE live_runs l SET workspace = r.workspace, agent = r.agent FROM runs r
WHERE r.id = l.run_id AND l.workspace IS NULL;
CREATE INDEX live_runs_of_owner
    ON live_runs (lane, requires, (coalesce(workspace, '')), (coalesce(agent, '')), due_at, run_id)
    WHERE due_at IS NOT NULL AND NOT is_pull AND losses = 0;

-- The workspace of a verification, so that the runs of one workspace to confirm are found without those of others.
-- Replicas of schema 16 leave it out.
ALTER TABLE verifications ADD COLUMN workspace text COLLATE "C";
UPDATE verifications v SET workspace = (SELECT r.workspace FROM runs r WHERE r.id = v.run_id);
CREATE INDEX verifications_of_workspace ON verifications (workspace);
