-- +goose NO TRANSACTION
-- +goose Up
ALTER TABLE slots SET (fillfactor = 50);

-- +goose Down
ALTER TABLE slots SET (fillfactor = 70);
