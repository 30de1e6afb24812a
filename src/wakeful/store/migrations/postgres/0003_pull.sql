-- Runs that wait for an executor to claim them: their lane says so, 'pull:' and the lane of their job, and
-- `until_at` for how long they wait. Of these alone `live` knows whose they are: the others pay nothing for it.

ALTER TABLE live
    ADD COLUMN workspace text COLLATE "C",
    ADD COLUMN agent     text COLLATE "C",
    ADD COLUMN until_at  timestamptz;

UPDATE runs r SET lane = 'pull:cron', until_at = r.due_at + interval '1 hour'
FROM live l WHERE l.run_id = r.id AND l.lane = 'pull' AND l.due_at IS NOT NULL;
UPDATE live l SET lane = r.lane, workspace = r.workspace, agent = r.agent, until_at = r.until_at
FROM runs r WHERE l.run_id = r.id AND l.lane = 'pull' AND l.due_at IS NOT NULL;

CREATE INDEX live_claimable ON live (workspace, due_at, run_id)
    WHERE workspace IS NOT NULL AND due_at IS NOT NULL;
CREATE INDEX live_claimable_of_agent ON live (workspace, agent, due_at, run_id)
    WHERE workspace IS NOT NULL AND due_at IS NOT NULL;
CREATE INDEX live_unclaimed ON live (until_at) WHERE until_at IS NOT NULL AND due_at IS NOT NULL;
