-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX IF NOT EXISTS slots_unscheduled ON slots (shard, uid, fire_time) WHERE trigger IN (2, 3);

-- +goose Down
DROP INDEX IF EXISTS slots_unscheduled;
