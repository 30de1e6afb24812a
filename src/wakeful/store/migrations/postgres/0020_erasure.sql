-- compatible: new indexes.

-- Instances whose history is being erased.
CREATE INDEX instances_deleting ON instances (id) WHERE status = 'deleting';
-- The deleted jobs of the schedules of an instance: they stay until their runs are pruned.
CREATE INDEX CONCURRENTLY jobs_deleted_schedules ON jobs (instance_id)
    WHERE instance_id IS NOT NULL AND deleted_at IS NOT NULL;
