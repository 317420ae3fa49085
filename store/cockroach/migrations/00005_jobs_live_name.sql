-- +goose NO TRANSACTION
-- +goose Up
CREATE UNIQUE INDEX IF NOT EXISTS jobs_live_name ON jobs (shard, namespace, name) WHERE ended_at IS NULL;

-- +goose Down
DROP INDEX IF EXISTS jobs_live_name;
