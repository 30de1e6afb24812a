-- Standard names for tables. Breaking: code of schema 8 does not find its tables.

ALTER TABLE answers RENAME TO idempotency_keys;
DROP INDEX answers_created;
CREATE INDEX idempotency_keys_created ON idempotency_keys (created_at);
ALTER TABLE holds RENAME TO budget_blocks;
ALTER TABLE alerted RENAME TO alert_cooldowns;
ALTER TABLE agents RENAME COLUMN old_secret_until TO old_secret_until_at;
