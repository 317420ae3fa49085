-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS skips_by_time ON skips (shard, made_at);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS skips_by_time;
