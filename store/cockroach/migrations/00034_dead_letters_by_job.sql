-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS dead_letters_by_job ON dead_letters (shard, uid);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS dead_letters_by_job;
