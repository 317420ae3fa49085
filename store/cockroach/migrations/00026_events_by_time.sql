-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX IF NOT EXISTS events_by_time ON events (shard, at);

-- +goose Down
DROP INDEX IF EXISTS events_by_time;
