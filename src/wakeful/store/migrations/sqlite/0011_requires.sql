-- What a run requires of the process that takes it, and what each process has. Breaking: code of schema 10 takes
-- runs that it cannot launch.

-- `function:NAME`, or '' if every process can launch the run (`capabilities.py`), and the lowest version of it.
ALTER TABLE runs ADD COLUMN requires TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN requires_version INTEGER NOT NULL DEFAULT 0;
-- A JSON object: what the process can launch, each with its highest version.
ALTER TABLE workers ADD COLUMN capabilities TEXT NOT NULL DEFAULT '{}';

-- Names with other characters than these, and long ones, are stored as a hash, which only code can compute. Their
-- runs stay takable by every process.
UPDATE runs SET requires = coalesce((
    SELECT 'function:' || f.name FROM (
        SELECT CASE json_extract(j.work, '$.target.kind')
            WHEN 'function' THEN json_extract(j.work, '$.target.name')
            WHEN 'workflow' THEN
                iif(json_extract(j.work, '$.target.to.kind') = 'function',
                    json_extract(j.work, '$.target.to.name'), NULL)
            END AS name
        FROM jobs j WHERE j.id = runs.job_id AND json_valid(j.work)) f
    WHERE f.name <> '' AND length(f.name) <= 200 AND f.name NOT GLOB '*[^ -~]*'), '')
WHERE state IN ('pending', 'retrying', 'running') AND NOT is_pull AND job_id IS NOT NULL;

DROP INDEX runs_due;
CREATE INDEX runs_due ON runs (lane, is_pull, requires, due_at)
    WHERE state IN ('pending', 'retrying') AND due_at IS NOT NULL;
