-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX IF NOT EXISTS requests_by_time ON requests (shard, fire_time);

-- +goose Down
DROP INDEX IF EXISTS requests_by_time;
