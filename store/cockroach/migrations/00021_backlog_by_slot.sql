-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX IF NOT EXISTS backlog_by_slot ON backlog (shard, fire_time, uid);

-- +goose Down
DROP INDEX IF EXISTS backlog_by_slot;
