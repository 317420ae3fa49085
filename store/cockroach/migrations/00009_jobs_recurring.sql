-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX IF NOT EXISTS jobs_recurring ON jobs (shard, uid) WHERE kind >= 3 AND ended_at IS NULL;

-- +goose Down
DROP INDEX IF EXISTS jobs_recurring;
