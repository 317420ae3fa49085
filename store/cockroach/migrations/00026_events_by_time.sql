-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS events_by_time ON events (shard, at);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS events_by_time;
