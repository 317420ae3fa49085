DELETE FROM backlog b USING unnest($1::INT4[], $2::BOOL[], $3::TEXT[], $4::INT4[], $5::TEXT[], $6::INT8[], $7::INT8[], $8::BYTEA[]) AS u (shard, waiting, handler, priority, fairness, ready_at, fire_time, uid) WHERE b.shard = u.shard AND b.waiting = u.waiting AND b.handler = u.handler AND b.priority = u.priority AND b.fairness = u.fairness AND b.ready_at = u.ready_at AND b.fire_time = u.fire_time AND b.uid = u.uid
;
DELETE FROM dead_letters WHERE shard = $1 AND fire_time = $2 AND uid = $3
;
DELETE FROM gaps WHERE shard = $1 AND to_time = $2 AND uid = $3 AND cursor_time = $4 AND cursor_uid = $5
;
DELETE FROM inbox WHERE shard = $1 AND uid = $2
;
INSERT INTO attempts (shard, fire_time, uid, attempt, worker, epoch, claimed_at, started_at, ended_at, outcome, error_code, error_text, late) SELECT * FROM unnest($1::INT4[], $2::INT8[], $3::BYTEA[], $4::INT4[], $5::TEXT[], $6::INT8[], $7::INT8[], $8::INT8[], $9::INT8[], $10::INT2[], $11::TEXT[], $12::TEXT[], $13::TEXT[]) ON CONFLICT DO NOTHING
;
INSERT INTO backlog (shard, waiting, handler, priority, fairness, ready_at, fire_time, uid, wake_at) SELECT u.shard, u.waiting, u.handler, u.priority, u.fairness, u.ready_at, u.fire_time, u.uid, u.wake_at FROM unnest($1::INT4[], $2::BOOL[], $3::TEXT[], $4::INT4[], $5::TEXT[], $6::INT8[], $7::INT8[], $8::BYTEA[], $9::INT8[], $10::INT2[]) AS u (shard, waiting, handler, priority, fairness, ready_at, fire_time, uid, wake_at, trigger) JOIN slots s ON s.shard = u.shard AND s.fire_time = u.fire_time AND s.uid = u.uid WHERE s.state = CASE WHEN u.waiting THEN 1 ELSE 2 END AND s.trigger = u.trigger AND CASE WHEN s.not_before <> 0 THEN s.not_before ELSE s.created_at END = u.ready_at ON CONFLICT DO NOTHING
;
INSERT INTO dead_letters (shard, fire_time, uid, handler, dead_at) SELECT s.shard, s.fire_time, s.uid, $4, $5 FROM slots s WHERE s.shard = $1 AND s.fire_time = $2 AND s.uid = $3 AND s.state = 4 ON CONFLICT DO NOTHING
;
INSERT INTO epochs (shard, epoch, owner, owner_gen, owner_rev, taken_at) VALUES ($1, $2, $3, $4, $5, (extract(epoch FROM now()) * 1000000)::INT8)
;
INSERT INTO events (shard, epoch, seq, at, kind, uid, fire_time, detail) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING
;
INSERT INTO gaps (shard, to_time, uid, from_time, cursor_time, cursor_uid, made_at) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING
;
INSERT INTO handlers (name, created_at, last_seen_at) SELECT u.name, $2, $2 FROM unnest($1::TEXT[]) AS u (name) ON CONFLICT (name) DO UPDATE SET last_seen_at = greatest(handlers.last_seen_at, excluded.last_seen_at)
;
INSERT INTO inbox (shard, uid) VALUES ($1, $2) ON CONFLICT DO NOTHING
;
INSERT INTO jobs (shard, uid, namespace, name, handler, params, kind, fire_at, schedule, retry, timeout_us, created_at, effective_from, ended_at, request_id, request_hash, quarantine) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) ON CONFLICT DO NOTHING
;
INSERT INTO meta (key, value) VALUES ('revision', 1) ON CONFLICT (key) DO UPDATE SET value = meta.value + 1 RETURNING value
;
INSERT INTO meta (key, value) VALUES ('shards', $1) ON CONFLICT DO NOTHING
;
INSERT INTO requests (shard, namespace, request_id, hash, fire_time, uid) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING
;
INSERT INTO shards (shard, owner, epoch, owner_gen, owner_rev, watermark, open_from) SELECT u.shard, '', 0, 0, 0, (extract(epoch FROM now()) * 1000000)::INT8, (extract(epoch FROM now()) * 1000000)::INT8 FROM unnest($1::INT4[]) AS u (shard) ON CONFLICT DO NOTHING
;
INSERT INTO slots (shard, fire_time, uid, trigger, state, attempt, failures, epoch, worker, incarnation, created_at, claimed_at, started_at, finished_at, not_before, deadline, outcome, error_code, error_text, result) SELECT * FROM unnest($1::INT4[], $2::INT8[], $3::BYTEA[], $4::INT2[], $5::INT2[], $6::INT4[], $7::INT4[], $8::INT8[], $9::TEXT[], $10::TEXT[], $11::INT8[], $12::INT8[], $13::INT8[], $14::INT8[], $15::INT8[], $16::INT8[], $17::INT2[], $18::TEXT[], $19::TEXT[], $20::BYTEA[]) ON CONFLICT DO NOTHING RETURNING shard, fire_time, uid
;
INSERT INTO slots (shard, fire_time, uid, trigger, state, attempt, failures, epoch, worker, incarnation, created_at, claimed_at, started_at, finished_at, not_before, deadline, outcome, error_code, error_text, result) SELECT u.* FROM unnest($1::INT4[], $2::INT8[], $3::BYTEA[], $4::INT2[], $5::INT2[], $6::INT4[], $7::INT4[], $8::INT8[], $9::TEXT[], $10::TEXT[], $11::INT8[], $12::INT8[], $13::INT8[], $14::INT8[], $15::INT8[], $16::INT8[], $17::INT2[], $18::TEXT[], $19::TEXT[], $20::BYTEA[]) AS u (shard, fire_time, uid, trigger, state, attempt, failures, epoch, worker, incarnation, created_at, claimed_at, started_at, finished_at, not_before, deadline, outcome, error_code, error_text, result) WHERE EXISTS (SELECT 1 FROM jobs j WHERE j.shard = u.shard AND j.uid = u.uid) ON CONFLICT DO NOTHING RETURNING shard, fire_time, uid
;
INSERT INTO slots (shard, fire_time, uid, trigger, state, attempt, failures, epoch, worker, incarnation, created_at, claimed_at, started_at, finished_at, not_before, deadline, outcome, error_code, error_text, result) SELECT u.* FROM unnest($1::INT4[], $2::INT8[], $3::BYTEA[], $4::INT2[], $5::INT2[], $6::INT4[], $7::INT4[], $8::INT8[], $9::TEXT[], $10::TEXT[], $11::INT8[], $12::INT8[], $13::INT8[], $14::INT8[], $15::INT8[], $16::INT8[], $17::INT2[], $18::TEXT[], $19::TEXT[], $20::BYTEA[]) AS u (shard, fire_time, uid, trigger, state, attempt, failures, epoch, worker, incarnation, created_at, claimed_at, started_at, finished_at, not_before, deadline, outcome, error_code, error_text, result) WHERE EXISTS (SELECT 1 FROM unnest($21::INT4[], $22::INT8[], $23::BYTEA[], $24::TEXT[], $25::TEXT[]) AS q (shard, fire_time, uid, namespace, request_id) JOIN requests r ON r.shard = q.shard AND r.namespace = q.namespace AND r.request_id = q.request_id AND r.fire_time = q.fire_time AND r.uid = q.uid WHERE q.shard = u.shard AND q.fire_time = u.fire_time AND q.uid = u.uid) ON CONFLICT DO NOTHING RETURNING shard, fire_time, uid
;
SELECT (CASE WHEN count(*) = $3 THEN '1' ELSE 'another epoch owns a shard of this batch' END)::INT8 FROM ( SELECT h.shard FROM shards h WHERE (h.shard, h.epoch) IN (SELECT * FROM unnest($1::INT4[], $2::INT8[])) ORDER BY h.shard FOR UPDATE) held
;
SELECT (extract(epoch FROM now()) * 1000000)::INT8
;
SELECT DISTINCT shard FROM inbox ORDER BY shard
;
SELECT attempt, worker, epoch, claimed_at, started_at, ended_at, outcome, error_code, error_text, late FROM attempts WHERE shard = $1 AND fire_time = $2 AND uid = $3 ORDER BY attempt
;
SELECT b.waiting, b.handler, b.priority, b.fairness, b.ready_at, b.wake_at, s.fire_time, s.uid, s.trigger, s.state, s.attempt, s.failures, s.epoch, s.worker, s.incarnation, s.created_at, s.claimed_at, s.started_at, s.finished_at, s.not_before, s.deadline, s.outcome, s.error_code, s.error_text, s.result, j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM backlog b JOIN slots s ON s.shard = b.shard AND s.fire_time = b.fire_time AND s.uid = b.uid JOIN jobs j ON j.shard = s.shard AND j.uid = s.uid WHERE b.shard = $1 AND b.waiting AND b.handler = $2 AND b.priority = $3 AND (b.fairness, b.ready_at, b.fire_time, b.uid) > ($4, $5, $6, $7) ORDER BY b.handler, b.priority, b.fairness, b.ready_at, b.fire_time, b.uid LIMIT $8
;
SELECT b.waiting, b.handler, b.priority, b.fairness, b.ready_at, b.wake_at, s.fire_time, s.uid, s.trigger, s.state, s.attempt, s.failures, s.epoch, s.worker, s.incarnation, s.created_at, s.claimed_at, s.started_at, s.finished_at, s.not_before, s.deadline, s.outcome, s.error_code, s.error_text, s.result, j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM backlog b JOIN slots s ON s.shard = b.shard AND s.fire_time = b.fire_time AND s.uid = b.uid JOIN jobs j ON j.shard = s.shard AND j.uid = s.uid WHERE b.shard = $1 AND b.waiting AND b.uid = $2 ORDER BY b.handler, b.priority, b.fairness, b.ready_at, b.fire_time, b.uid LIMIT $3
;
SELECT count(*) FROM shards
;
SELECT cursor_time, cursor_uid FROM gaps WHERE shard = $1 AND to_time = $2 AND uid = $3
;
SELECT epoch FROM shards WHERE shard = $1
;
SELECT fire_time, uid, handler, dead_at FROM dead_letters WHERE shard = $1 ORDER BY fire_time, uid LIMIT $2
;
SELECT handler, priority, count(*), min(wake_at) FROM backlog WHERE shard = $1 AND waiting GROUP BY handler, priority
;
SELECT hash, fire_time, uid FROM requests WHERE shard = $1 AND namespace = $2 AND request_id = $3
;
SELECT j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM inbox i JOIN jobs j ON j.shard = i.shard AND j.uid = i.uid WHERE i.shard = $1 LIMIT $2
;
SELECT j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM jobs j WHERE j.shard = $1 AND j.fire_at IS NOT NULL AND (j.ended_at IS NULL OR j.ended_at >= j.fire_at) AND (j.fire_at, j.uid) > ($2, $3) AND j.fire_at <= $4 AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.shard = j.shard AND i.uid = j.uid) ORDER BY j.fire_at, j.uid LIMIT $5
;
SELECT j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM jobs j WHERE j.namespace = $1 AND (j.name, j.uid) > ($2, $3) AND ($4 OR j.ended_at IS NULL) ORDER BY j.name, j.uid LIMIT $5
;
SELECT j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM jobs j WHERE j.namespace = $1 AND j.name = $2 AND j.shard = $3 ORDER BY j.ended_at IS NULL DESC, j.ended_at DESC LIMIT 1
;
SELECT j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM jobs j WHERE j.shard = $1 AND j.kind >= 3 AND j.ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.shard = j.shard AND i.uid = j.uid)
;
SELECT j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM jobs j WHERE j.shard = $1 AND (j.uid = $2 OR (j.namespace = $3 AND j.request_id = $4) OR (j.namespace = $3 AND j.name = $5 AND j.ended_at IS NULL)) ORDER BY j.uid = $2 DESC, coalesce(j.request_id = $4, false) DESC LIMIT 1
;
SELECT j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM jobs j WHERE j.shard = $1 AND j.ended_at >= $2 AND j.kind >= 2 AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.shard = j.shard AND i.uid = j.uid)
;
SELECT j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM jobs j WHERE j.shard = $1 AND j.namespace = $2 AND j.request_id = $3
;
SELECT j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM shards h JOIN jobs j ON j.shard = h.shard AND j.uid = $1 WHERE j.namespace = $2 LIMIT 1
;
SELECT j.uid FROM jobs j WHERE j.namespace = $1 AND j.name = $2 AND j.shard = $3 ORDER BY j.ended_at IS NULL DESC, j.ended_at DESC
;
SELECT name, created_at, last_seen_at FROM handlers WHERE name = $1
;
SELECT name, created_at, last_seen_at FROM handlers WHERE name > $1 ORDER BY name LIMIT $2
;
SELECT owner, epoch, owner_gen, owner_rev, watermark, open_from FROM shards WHERE shard = $1 FOR UPDATE
;
SELECT s.fire_time, s.uid, s.trigger, s.state, s.attempt, s.failures, s.epoch, s.worker, s.incarnation, s.created_at, s.claimed_at, s.started_at, s.finished_at, s.not_before, s.deadline, s.outcome, s.error_code, s.error_text, s.result FROM slots s WHERE s.shard = $1 AND s.uid = $2 AND s.trigger IN (2, 3) AND s.fire_time < $3 ORDER BY s.fire_time DESC LIMIT $4
;
SELECT s.fire_time, s.uid, s.trigger, s.state, s.attempt, s.failures, s.epoch, s.worker, s.incarnation, s.created_at, s.claimed_at, s.started_at, s.finished_at, s.not_before, s.deadline, s.outcome, s.error_code, s.error_text, s.result FROM slots s WHERE s.shard = $1 AND s.fire_time = $2 AND s.uid = $3
;
SELECT s.fire_time, s.uid, s.trigger, s.state, s.attempt, s.failures, s.epoch, s.worker, s.incarnation, s.created_at, s.claimed_at, s.started_at, s.finished_at, s.not_before, s.deadline, s.outcome, s.error_code, s.error_text, s.result FROM unnest($2::INT8[], $3::BYTEA[]) AS k (fire_time, uid) JOIN slots s ON s.shard = $1 AND s.fire_time = k.fire_time AND s.uid = k.uid
;
SELECT s.fire_time, s.uid, s.trigger, s.state, s.attempt, s.failures, s.epoch, s.worker, s.incarnation, s.created_at, s.claimed_at, s.started_at, s.finished_at, s.not_before, s.deadline, s.outcome, s.error_code, s.error_text, s.result, j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM backlog b JOIN slots s ON s.shard = b.shard AND s.fire_time = b.fire_time AND s.uid = b.uid JOIN jobs j ON j.shard = s.shard AND j.uid = s.uid WHERE b.shard = $1 AND NOT b.waiting
;
SELECT s.fire_time, s.uid, s.trigger, s.state, s.attempt, s.failures, s.epoch, s.worker, s.incarnation, s.created_at, s.claimed_at, s.started_at, s.finished_at, s.not_before, s.deadline, s.outcome, s.error_code, s.error_text, s.result, j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM slots s JOIN jobs j ON j.shard = s.shard AND j.uid = s.uid WHERE s.shard = $1 AND s.fire_time = $2 AND s.uid = $3
;
SELECT s.fire_time, s.uid, s.trigger, s.state, s.attempt, s.failures, s.epoch, s.worker, s.incarnation, s.created_at, s.claimed_at, s.started_at, s.finished_at, s.not_before, s.deadline, s.outcome, s.error_code, s.error_text, s.result, j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM slots s JOIN jobs j ON j.shard = s.shard AND j.uid = s.uid WHERE s.shard = $1 AND s.fire_time >= (SELECT open_from FROM shards WHERE shard = $1) AND s.state IN (1, 2) AND NOT EXISTS (SELECT 1 FROM backlog b WHERE b.shard = s.shard AND b.fire_time = s.fire_time AND b.uid = s.uid AND b.waiting)
;
SELECT s.fire_time, s.uid, s.trigger, s.state, s.attempt, s.failures, s.epoch, s.worker, s.incarnation, s.created_at, s.claimed_at, s.started_at, s.finished_at, s.not_before, s.deadline, s.outcome, s.error_code, s.error_text, s.result, j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us, j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine FROM slots s JOIN jobs j ON j.shard = s.shard AND j.uid = s.uid WHERE s.shard = $1 AND (s.fire_time, s.uid) < ($2, $3) ORDER BY s.fire_time DESC, s.uid DESC LIMIT $4
;
SELECT seq, at, kind, uid, fire_time, detail FROM events WHERE shard = $1 ORDER BY epoch DESC, seq DESC LIMIT $2
;
SELECT to_time, uid, from_time, cursor_time, cursor_uid, made_at FROM gaps WHERE shard = $1 ORDER BY to_time, uid
;
SELECT value FROM meta WHERE key = 'shards'
;
SELECT watermark FROM shards WHERE shard = $1
;
UPDATE attempts SET late = $1 WHERE shard = $2 AND fire_time = $3 AND uid = $4 AND attempt = $5
;
UPDATE gaps SET cursor_time = $6, cursor_uid = $7 WHERE shard = $1 AND to_time = $2 AND uid = $3 AND cursor_time = $4 AND cursor_uid = $5
;
UPDATE jobs SET ended_at = $1 WHERE shard = $2 AND uid = $3 AND ended_at IS NULL
;
UPDATE jobs SET quarantine = $1 WHERE shard = $2 AND uid = $3
;
UPDATE shards SET owner = $1, epoch = $2, owner_gen = $3, owner_rev = $4 WHERE shard = $5 AND epoch = $6
;
UPDATE shards h SET watermark = greatest(h.watermark, u.watermark), open_from = greatest(h.open_from, u.open_from) FROM unnest($1::INT4[], $2::INT8[], $3::INT8[]) AS u (shard, watermark, open_from) WHERE h.shard = u.shard
;
UPDATE slots s SET trigger = u.trigger, created_at = u.created_at, state = u.state, attempt = u.attempt, failures = u.failures, epoch = u.epoch, worker = u.worker, incarnation = u.incarnation, claimed_at = u.claimed_at, started_at = u.started_at, finished_at = u.finished_at, not_before = u.not_before, deadline = u.deadline, outcome = u.outcome, error_code = u.error_code, error_text = u.error_text, result = u.result FROM unnest($1::INT4[], $2::INT8[], $3::BYTEA[], $4::INT2[], $5::INT2[], $6::INT4[], $7::INT4[], $8::INT8[], $9::TEXT[], $10::TEXT[], $11::INT8[], $12::INT8[], $13::INT8[], $14::INT8[], $15::INT8[], $16::INT8[], $17::INT2[], $18::TEXT[], $19::TEXT[], $20::BYTEA[], $21::INT2[], $22::INT4[]) AS u (shard, fire_time, uid, trigger, state, attempt, failures, epoch, worker, incarnation, created_at, claimed_at, started_at, finished_at, not_before, deadline, outcome, error_code, error_text, result, from_state, from_attempt) WHERE s.shard = u.shard AND s.fire_time = u.fire_time AND s.uid = u.uid AND s.state = u.from_state AND s.attempt = u.from_attempt RETURNING s.shard, s.fire_time, s.uid
