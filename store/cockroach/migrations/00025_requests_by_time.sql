-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS requests_by_time ON requests (shard, fire_time);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS requests_by_time;
