-- Runs that wait for an executor to claim them: their lane says so, 'pull:' and the lane of their job, and
-- `until_at` for how long they wait. The ranges of lanes are those that begin with 'pull:'.

UPDATE runs SET lane = 'pull:cron', until_at = due_at + 3600000
WHERE lane = 'pull' AND state IN ('pending', 'retrying');

CREATE INDEX runs_claimable ON runs (workspace, due_at)
    WHERE state IN ('pending', 'retrying') AND lane >= 'pull:' AND lane < 'pull;';
CREATE INDEX runs_claimable_of_agent ON runs (workspace, agent, due_at)
    WHERE state IN ('pending', 'retrying') AND lane >= 'pull:' AND lane < 'pull;';
CREATE INDEX runs_unclaimed ON runs (until_at)
    WHERE state IN ('pending', 'retrying') AND until_at IS NOT NULL;
