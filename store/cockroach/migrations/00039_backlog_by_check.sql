-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS backlog_by_check ON backlog (shard, check_at) WHERE check_at IS NOT NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS backlog_by_check;
