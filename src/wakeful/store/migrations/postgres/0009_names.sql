-- Standard names for tables. Breaking: code of schema 8 does not find its tables.

ALTER TABLE answers RENAME TO idempotency_keys;
ALTER INDEX answers_pkey RENAME TO idempotency_keys_pkey;
ALTER INDEX answers_created RENAME TO idempotency_keys_created;
ALTER TABLE holds RENAME TO budget_blocks;
ALTER INDEX holds_pkey RENAME TO budget_blocks_pkey;
ALTER TABLE alerted RENAME TO alert_cooldowns;
ALTER INDEX alerted_pkey RENAME TO alert_cooldowns_pkey;
ALTER TABLE live RENAME TO live_runs;
ALTER INDEX live_pkey RENAME TO live_runs_pkey;
ALTER INDEX live_of_job RENAME TO live_runs_of_job;
ALTER INDEX live_due RENAME TO live_runs_due;
ALTER INDEX live_claimable RENAME TO live_runs_claimable;
ALTER INDEX live_claimable_of_agent RENAME TO live_runs_claimable_of_agent;
ALTER INDEX live_unclaimed RENAME TO live_runs_unclaimed;
