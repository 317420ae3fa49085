-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS backlog_by_job ON backlog (shard, uid);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS backlog_by_job;
