-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_single ON jobs (shard, (coalesce(fire_at, created_at)), uid) WHERE kind < 3 AND ended_at IS NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS jobs_single;
