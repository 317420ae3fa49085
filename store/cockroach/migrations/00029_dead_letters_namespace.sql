-- +goose NO TRANSACTION
-- +goose Up
UPDATE dead_letters d SET namespace = j.namespace FROM jobs j WHERE j.shard = d.shard AND j.uid = d.uid AND d.namespace = '';

-- +goose Down
SELECT 1;
