-- +goose NO TRANSACTION
-- +goose Up
ALTER TABLE slots SET (fillfactor = 70);

-- +goose Down
ALTER TABLE slots RESET (fillfactor);
