-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX IF NOT EXISTS jobs_once ON jobs (shard, fire_at, uid) WHERE fire_at IS NOT NULL;

-- +goose Down
DROP INDEX IF EXISTS jobs_once;
