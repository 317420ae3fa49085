package cockroach

import "github.com/carillon-scheduler/carillon/store/storekit"

// Every statement that both databases get stands in this file, so that each can be
// checked: that both understand it, and that no plan walks a whole table. They use what
// CockroachDB and PostgreSQL have in common; see docs/decisions/0010.

const (
	pruneUnnest = `unnest($1::INT4[], $2::INT8[], $3::BYTEA[], $4::INT2[], $5::INT4[]) AS u (shard, fire_time, uid, state, attempt)`
	pruneStands = `s.shard = u.shard AND s.fire_time = u.fire_time AND s.uid = u.uid AND s.state = u.state AND s.attempt = u.attempt AND s.state > 2`

	slotColumnsIn = `shard, fire_time, uid, trigger, state, attempt, failures, epoch, worker, incarnation,
		created_at, claimed_at, started_at, finished_at, not_before, deadline, outcome, error_code, error_text, result, requested_at, breaches, params, notes`
	slotUnnest = `unnest($1::INT4[], $2::INT8[], $3::BYTEA[], $4::INT2[], $5::INT2[], $6::INT4[], $7::INT4[], $8::INT8[], $9::TEXT[], $10::TEXT[],
		$11::INT8[], $12::INT8[], $13::INT8[], $14::INT8[], $15::INT8[], $16::INT8[], $17::INT2[], $18::TEXT[], $19::TEXT[], $20::BYTEA[], $21::INT8[], $22::INT2[], $23::BYTEA[], $24::BYTEA[])`
)

// fenceText is what the fence's failing cast holds.
const fenceText = "another epoch owns a shard of this batch"

// lockFence locks the rows of the batch's shards, and fails in the database unless
// it locked as many as it named: a COMMIT that is already on its way can't get past
// it.
const lockFence = `SELECT (CASE WHEN count(*) = $3 THEN '1' ELSE '` + fenceText + `' END)::INT8 FROM (
	SELECT h.shard FROM shards h WHERE (h.shard, h.epoch) IN (SELECT * FROM unnest($1::INT4[], $2::INT8[])) AND h.try <= $4 ORDER BY h.shard FOR UPDATE) held`

// raiseTry refuses what was sent of the shards before this batch, and is still under way.
const raiseTry = `UPDATE shards SET try = $2 WHERE shard IN (SELECT * FROM unnest($1::INT4[]))`

const (
	moveWatermarks = `UPDATE shards h SET watermark = greatest(h.watermark, u.watermark), open_from = greatest(h.open_from, u.open_from),
		retained_from = greatest(h.retained_from, u.retained_from)
		FROM unnest($1::INT4[], $2::INT8[], $3::INT8[], $4::INT8[]) AS u (shard, watermark, open_from, retained_from) WHERE h.shard = u.shard`

	jobColumnsIn = `shard, uid, namespace, name, handler, params, kind, fire_at, schedule, retry, timeout_us,
		created_at, effective_from, ended_at, request_id, request_hash, quarantine, labels, policies`
	insertJobs = `INSERT INTO jobs (` + jobColumnsIn + `) SELECT * FROM unnest($1::INT4[], $2::BYTEA[], $3::TEXT[], $4::TEXT[], $5::TEXT[], $6::BYTEA[],
		$7::INT2[], $8::INT8[], $9::TEXT[], $10::TEXT[], $11::INT8[], $12::INT8[], $13::INT8[], $14::INT8[], $15::TEXT[], $16::TEXT[], $17::TEXT[], $18::TEXT[], $19::TEXT[])
		ON CONFLICT DO NOTHING RETURNING shard, uid`
	endJobs = `UPDATE jobs j SET ended_at = u.ended_at, ended_by_itself = u.by_itself
		FROM unnest($1::INT4[], $2::BYTEA[], $3::INT8[], $4::BOOL[]) AS u (shard, uid, ended_at, by_itself)
		WHERE j.shard = u.shard AND j.uid = u.uid AND coalesce(j.ended_at, 0) <= 0` // not IS NULL, lest the index of live names be walked; not =, which is thought to leave hardly any
	quarantineJob  = `UPDATE jobs SET quarantine = $1 WHERE shard = $2 AND uid = $3`
	insertRequests = `INSERT INTO requests (shard, namespace, request_id, hash, fire_time, uid)
		SELECT * FROM unnest($1::INT4[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::INT8[], $6::BYTEA[]) ON CONFLICT DO NOTHING RETURNING shard, namespace, request_id`

	insertSlots = `INSERT INTO slots (` + slotColumnsIn + `) SELECT * FROM ` + slotUnnest + ` ON CONFLICT DO NOTHING RETURNING shard, fire_time, uid`
	// The slots of a create are written if the job is there, those of a request if it
	// is the request's own.
	insertSlotsOfJobs = `INSERT INTO slots (` + slotColumnsIn + `) SELECT u.* FROM ` + slotUnnest + ` AS u (` + slotColumnsIn + `)
		WHERE EXISTS (SELECT 1 FROM jobs j WHERE j.shard = u.shard AND j.uid = u.uid) ON CONFLICT DO NOTHING RETURNING shard, fire_time, uid`
	insertSlotsOfRequests = `INSERT INTO slots (` + slotColumnsIn + `) SELECT u.* FROM ` + slotUnnest + ` AS u (` + slotColumnsIn + `)
		WHERE EXISTS (SELECT 1 FROM unnest($25::INT4[], $26::INT8[], $27::BYTEA[], $28::TEXT[], $29::TEXT[]) AS q (shard, fire_time, uid, namespace, request_id)
			JOIN requests r ON r.shard = q.shard AND r.namespace = q.namespace AND r.request_id = q.request_id AND r.fire_time = q.fire_time AND r.uid = q.uid
			WHERE q.shard = u.shard AND q.fire_time = u.fire_time AND q.uid = u.uid)
		ON CONFLICT DO NOTHING RETURNING shard, fire_time, uid`
	updateSlots = `UPDATE slots s SET trigger = u.trigger, created_at = u.created_at, state = u.state, attempt = u.attempt, failures = u.failures, epoch = u.epoch, worker = u.worker, incarnation = u.incarnation,
		claimed_at = u.claimed_at, started_at = u.started_at, finished_at = u.finished_at, not_before = u.not_before, deadline = u.deadline,
		outcome = u.outcome, error_code = u.error_code, error_text = u.error_text, result = u.result,
		requested_at = u.requested_at, breaches = u.breaches, params = u.params, notes = u.notes
		FROM unnest($1::INT4[], $2::INT8[], $3::BYTEA[], $4::INT2[], $5::INT2[], $6::INT4[], $7::INT4[], $8::INT8[], $9::TEXT[], $10::TEXT[],
			$11::INT8[], $12::INT8[], $13::INT8[], $14::INT8[], $15::INT8[], $16::INT8[], $17::INT2[], $18::TEXT[], $19::TEXT[], $20::BYTEA[],
			$21::INT8[], $22::INT2[], $23::BYTEA[], $24::BYTEA[], $25::INT2[], $26::INT4[]) AS u (` + slotColumnsIn + `, from_state, from_attempt)
		WHERE s.shard = u.shard AND s.fire_time = u.fire_time AND s.uid = u.uid AND s.state = u.from_state AND s.attempt = u.from_attempt
		RETURNING s.shard, s.fire_time, s.uid`

	insertAttempts = `INSERT INTO attempts (shard, fire_time, uid, attempt, worker, epoch, claimed_at, started_at, ended_at, outcome, error_code, error_text, late, log)
		SELECT u.* FROM unnest($1::INT4[], $2::INT8[], $3::BYTEA[], $4::INT4[], $5::TEXT[], $6::INT8[], $7::INT8[], $8::INT8[], $9::INT8[], $10::INT2[],
			$11::TEXT[], $12::TEXT[], $13::TEXT[], $14::TEXT[]) AS u (shard, fire_time, uid, attempt, worker, epoch, claimed_at, started_at, ended_at, outcome, error_code, error_text, late, log)
		JOIN slots s ON s.shard = u.shard AND s.fire_time = u.fire_time AND s.uid = u.uid ON CONFLICT DO NOTHING`
	setLates = `UPDATE attempts a SET late = u.late FROM unnest($1::INT4[], $2::INT8[], $3::BYTEA[], $4::INT4[], $5::TEXT[]) AS u (shard, fire_time, uid, attempt, late)
		WHERE a.shard = u.shard AND a.fire_time = u.fire_time AND a.uid = u.uid AND a.attempt = u.attempt`

	deleteBacklog = `DELETE FROM backlog b USING unnest($1::INT4[], $2::BOOL[], $3::TEXT[], $4::INT4[], $5::TEXT[], $6::INT8[], $7::INT8[], $8::BYTEA[])
		AS u (shard, waiting, handler, priority, fairness, ready_at, fire_time, uid)
		WHERE b.shard = u.shard AND b.waiting = u.waiting AND b.handler = u.handler AND b.priority = u.priority AND b.fairness = u.fairness
			AND b.ready_at = u.ready_at AND b.fire_time = u.fire_time AND b.uid = u.uid`
	insertBacklog = `INSERT INTO backlog (shard, waiting, handler, priority, fairness, ready_at, fire_time, uid, wake_at, check_at)
		SELECT u.shard, u.waiting, u.handler, u.priority, u.fairness, u.ready_at, u.fire_time, u.uid, u.wake_at, u.check_at
		FROM unnest($1::INT4[], $2::BOOL[], $3::TEXT[], $4::INT4[], $5::TEXT[], $6::INT8[], $7::INT8[], $8::BYTEA[], $9::INT8[], $10::INT8[], $11::INT8[], $12::INT2[])
			AS u (shard, waiting, handler, priority, fairness, ready_at, fire_time, uid, wake_at, check_at, stands_at, trigger)
		JOIN slots s ON s.shard = u.shard AND s.fire_time = u.fire_time AND s.uid = u.uid
		WHERE s.state = CASE WHEN u.waiting THEN 1 ELSE 2 END AND s.trigger = u.trigger
			AND CASE WHEN s.not_before <> 0 THEN s.not_before ELSE s.created_at END = u.stands_at
		ON CONFLICT DO NOTHING`

	insertDead = `INSERT INTO dead_letters (shard, fire_time, uid, handler, dead_at, namespace, error_code, fingerprint, sample)
		SELECT u.shard, u.fire_time, u.uid, u.handler, u.dead_at, u.namespace, u.error_code, u.fingerprint, u.sample
		FROM unnest($1::INT4[], $2::INT8[], $3::BYTEA[], $4::TEXT[], $5::INT8[], $6::TEXT[], $7::TEXT[], $8::TEXT[], $9::TEXT[])
			AS u (shard, fire_time, uid, handler, dead_at, namespace, error_code, fingerprint, sample)
		JOIN slots s ON s.shard = u.shard AND s.fire_time = u.fire_time AND s.uid = u.uid WHERE s.state = 4 ON CONFLICT DO NOTHING`
	deleteDead = `DELETE FROM dead_letters d USING unnest($1::INT4[], $2::INT8[], $3::BYTEA[]) AS u (shard, fire_time, uid)
		WHERE d.shard = u.shard AND d.fire_time = u.fire_time AND d.uid = u.uid`

	insertGap = `INSERT INTO gaps (shard, to_time, uid, from_time, cursor_time, cursor_uid, made_at, options) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`
	changeGap = `UPDATE gaps SET options = $4 WHERE shard = $1 AND to_time = $2 AND uid = $3`
	moveGap   = `UPDATE gaps SET cursor_time = $6, cursor_uid = $7 WHERE shard = $1 AND to_time = $2 AND uid = $3 AND cursor_time = $4 AND cursor_uid = $5`
	closeGap  = `DELETE FROM gaps WHERE shard = $1 AND to_time = $2 AND uid = $3 AND cursor_time = $4 AND cursor_uid = $5`

	insertSkips = `INSERT INTO skips (shard, uid, to_time, from_time, count, code, made_at)
		SELECT * FROM unnest($1::INT4[], $2::BYTEA[], $3::INT8[], $4::INT8[], $5::INT8[], $6::TEXT[], $7::INT8[]) ON CONFLICT DO NOTHING`

	// A slot goes with what hangs on it, if it stands as it was read.
	pruneAttempts = `DELETE FROM attempts a USING ` + pruneUnnest + `, slots s WHERE ` + pruneStands + `
			AND a.shard = u.shard AND a.fire_time = u.fire_time AND a.uid = u.uid`
	pruneDead = `DELETE FROM dead_letters d USING ` + pruneUnnest + `, slots s WHERE ` + pruneStands + `
			AND d.shard = u.shard AND d.fire_time = u.fire_time AND d.uid = u.uid`
	pruneSlots = `DELETE FROM slots s USING ` + pruneUnnest + ` WHERE ` + pruneStands
	pruneJobs  = `DELETE FROM jobs j USING unnest($1::INT4[], $2::BYTEA[]) AS u (shard, uid) WHERE j.shard = u.shard AND j.uid = u.uid AND coalesce(j.ended_at, 0) > 0
		AND (SELECT count(*) FROM inbox i WHERE i.shard = j.shard AND i.uid = j.uid) < 1`
	pruneRequests = `DELETE FROM requests q WHERE q.shard = $1 AND (q.namespace, q.request_id) IN (
		SELECT r.namespace, r.request_id FROM requests r WHERE r.shard = $1 AND r.fire_time >= $2 AND r.fire_time < $3 ORDER BY r.fire_time LIMIT $4)`
	pruneEvents = `DELETE FROM events d WHERE d.shard = $1 AND (d.epoch, d.seq) IN (
		SELECT e.epoch, e.seq FROM events e WHERE e.shard = $1 AND e.at >= $2 AND e.at < $3 ORDER BY e.at LIMIT $4)`

	pruneSkips = `DELETE FROM skips d WHERE d.shard = $1 AND (d.uid, d.to_time) IN (
		SELECT k.uid, k.to_time FROM skips k WHERE k.shard = $1 AND k.made_at >= $2 AND k.made_at < $3 ORDER BY k.made_at LIMIT $4)`

	deleteInbox  = `DELETE FROM inbox i WHERE i.shard = $1 AND i.uid = ANY ($2::BYTEA[])`
	insertEvents = `INSERT INTO events (shard, epoch, seq, at, kind, uid, fire_time, detail)
		SELECT * FROM unnest($1::INT4[], $2::INT8[], $3::INT8[], $4::INT8[], $5::TEXT[], $6::BYTEA[], $7::INT8[], $8::TEXT[]) ON CONFLICT DO NOTHING`
)

// Reads of a commit: what stood in the way.
const (
	selectEpoch = `SELECT epoch FROM shards WHERE shard = $1`
	selectFence = `SELECT epoch, try FROM shards WHERE shard = $1`
	selectRival = `SELECT ` + storekit.JobColumns + ` FROM jobs j WHERE j.shard = $1
		AND (j.uid = $2 OR (j.namespace = $3 AND j.request_id = $4) OR (j.namespace = $3 AND j.name = $5 AND j.ended_at IS NULL))
		ORDER BY j.uid = $2 DESC, coalesce(j.request_id = $4, false) DESC LIMIT 1`
	selectRequest = `SELECT hash, fire_time, uid FROM requests WHERE shard = $1 AND namespace = $2 AND request_id = $3`
	selectCursor  = `SELECT cursor_time, cursor_uid FROM gaps WHERE shard = $1 AND to_time = $2 AND uid = $3`
	selectSlot    = `SELECT ` + storekit.SlotColumns + ` FROM slots s WHERE s.shard = $1 AND s.fire_time = $2 AND s.uid = $3`
)

// Ownership.
const (
	// now is the database's clock in microseconds.
	now = `(extract(epoch FROM now()) * 1000000)::INT8`

	selectNow    = `SELECT ` + now
	insertCount  = `INSERT INTO meta (key, value) VALUES ('shards', $1) ON CONFLICT DO NOTHING`
	selectCount  = `SELECT value FROM meta WHERE key = 'shards'`
	insertShards = `INSERT INTO shards (shard, owner, epoch, owner_gen, owner_rev, watermark, open_from)
		SELECT u.shard, '', 0, 0, 0, ` + now + `, ` + now + ` FROM unnest($1::INT4[]) AS u (shard) ON CONFLICT DO NOTHING`
	raiseRevision = `INSERT INTO meta (key, value) VALUES ('revision', 1)
		ON CONFLICT (key) DO UPDATE SET value = meta.value + 1 RETURNING value`
	lockRow    = `SELECT owner, epoch, owner_gen, owner_rev, watermark, open_from, retained_from FROM shards WHERE shard = $1 FOR UPDATE`
	takeRow    = `UPDATE shards SET owner = $1, epoch = $2, owner_gen = $3, owner_rev = $4, try = 0 WHERE shard = $5 AND epoch = $6`
	auditTake  = `INSERT INTO epochs (shard, epoch, owner, owner_gen, owner_rev, taken_at) VALUES ($1, $2, $3, $4, $5, ` + now + `)`
	renewRow   = `UPDATE shards SET owner_gen = $1, owner_rev = $2 WHERE shard = $3 AND epoch = $4`
	giveUpRows = `UPDATE shards h SET owner = '', epoch = h.epoch + 1 FROM unnest($1::INT4[], $2::INT8[]) AS u (shard, epoch)
		WHERE h.shard = u.shard AND h.epoch = u.epoch`
	auditGivenUp = `INSERT INTO epochs (shard, epoch, owner, owner_gen, owner_rev, taken_at)
		SELECT h.shard, h.epoch, h.owner, h.owner_gen, h.owner_rev, ` + now + ` FROM shards h WHERE h.shard IN (SELECT * FROM unnest($1::INT4[]))`
	selectOwners  = `SELECT shard, owner, epoch, owner_gen, owner_rev, watermark FROM shards ORDER BY shard`
	insertCluster = `INSERT INTO meta (key, value) VALUES ('cluster', $1) ON CONFLICT DO NOTHING`
	selectCluster = `SELECT value FROM meta WHERE key = 'cluster'`
	insertInto    = `INSERT INTO inbox (shard, uid) SELECT * FROM unnest($1::INT4[], $2::BYTEA[]) ON CONFLICT DO NOTHING`
)

// Reads of an owner. Each is in one transaction with selectEpoch. Where a row is
// looked for in another table, it is counted: PostgreSQL turns an EXISTS into a join,
// and may then walk the other table.
const (
	slotJoin   = ` FROM slots s JOIN jobs j ON j.shard = s.shard AND j.uid = s.uid `
	notInInbox = ` AND (SELECT count(*) FROM inbox i WHERE i.shard = j.shard AND i.uid = j.uid) < 1`

	selectGaps    = `SELECT to_time, uid, from_time, cursor_time, cursor_uid, made_at, options FROM gaps WHERE shard = $1 ORDER BY to_time, uid`
	loadRecurring = `SELECT ` + storekit.RecurringColumns + ` FROM jobs j WHERE j.shard = $1 AND j.kind >= 3 AND j.ended_at IS NULL` + notInInbox
	loadWatermark = `SELECT watermark FROM shards WHERE shard = $1`
	loadEnded     = `SELECT ` + storekit.RecurringColumns + ` FROM jobs j WHERE j.shard = $1 AND j.ended_at IS NOT NULL AND j.ended_at >= $2 AND j.kind >= 2` + notInInbox
	loadOpen      = `SELECT ` + storekit.SlotColumns + `, ` + storekit.JobColumns + slotJoin + `
		WHERE s.shard = $1 AND s.fire_time >= (SELECT open_from FROM shards WHERE shard = $1) AND s.state IN (1, 2)
		AND (SELECT count(*) FROM backlog b WHERE b.shard = s.shard AND b.fire_time = s.fire_time AND b.uid = s.uid AND b.waiting) = 0`
	loadClaimed = `SELECT ` + storekit.SlotColumns + `, ` + storekit.JobColumns + ` FROM backlog b
		JOIN LATERAL (SELECT s.* FROM slots s WHERE s.shard = b.shard AND s.fire_time = b.fire_time AND s.uid = b.uid LIMIT 1) s ON true
		JOIN jobs j ON j.shard = s.shard AND j.uid = s.uid WHERE b.shard = $1 AND NOT b.waiting`
	loadBacklog = `SELECT handler, priority, fairness, count(*), min(wake_at) FROM backlog WHERE shard = $1 AND waiting GROUP BY handler, priority, fairness`
	loadCheckAt = `SELECT coalesce((SELECT c.check_at FROM backlog c WHERE c.shard = $1 AND c.check_at > 0 ORDER BY c.check_at LIMIT 1), 0)`
	selectOnce  = `SELECT ` + storekit.JobColumns + ` FROM jobs j
		WHERE j.shard = $1 AND j.fire_at IS NOT NULL AND (j.ended_at IS NULL OR j.ended_at >= j.fire_at) AND (j.fire_at, j.uid) > ($2, $3) AND j.fire_at <= $4
		` + notInInbox + ` ORDER BY j.fire_at, j.uid LIMIT $5`
	selectWaiting = `SELECT ` + storekit.WaitingColumns + ` FROM backlog b
		JOIN LATERAL (SELECT s.shard, ` + storekit.SlotColumns + ` FROM slots s WHERE s.shard = b.shard AND s.fire_time = b.fire_time AND s.uid = b.uid LIMIT 1) s ON true
		JOIN jobs j ON j.shard = s.shard AND j.uid = s.uid
		WHERE b.shard = $1 AND b.waiting AND `
	orderWaiting   = ` ORDER BY b.handler, b.priority, b.fairness, b.ready_at, b.fire_time, b.uid LIMIT `
	waitingOf      = selectWaiting + `b.handler = $2 AND b.priority = $3 AND b.fairness = $4 AND (b.ready_at, b.fire_time, b.uid) > ($5, $6, $7)` + orderWaiting + `$8`
	waitingToCheck = `SELECT ` + storekit.WaitingColumns + ` FROM (SELECT c.* FROM backlog c WHERE c.shard = $1 AND c.check_at > 0 ORDER BY c.check_at LIMIT $2) b
		JOIN LATERAL (SELECT s.shard, ` + storekit.SlotColumns + ` FROM slots s WHERE s.shard = b.shard AND s.fire_time = b.fire_time AND s.uid = b.uid LIMIT 1) s ON true
		JOIN jobs j ON j.shard = s.shard AND j.uid = s.uid ORDER BY b.check_at`
	waitingOfJob = selectWaiting + `b.uid = $2` + orderWaiting + `$3`
	selectInbox  = `SELECT ` + storekit.JobColumns + ` FROM inbox i
		JOIN LATERAL (SELECT j.* FROM jobs j WHERE j.shard = i.shard AND j.uid = i.uid LIMIT 1) j ON true WHERE i.shard = $1 LIMIT $2`
	inboxShards    = `SELECT s.shard FROM shards s WHERE (SELECT count(*) FROM (SELECT 1 FROM inbox i WHERE i.shard = s.shard LIMIT 1) one) > 0 ORDER BY s.shard`
	selectSlotOf   = `SELECT ` + storekit.SlotColumns + `, ` + storekit.JobColumns + slotJoin + `WHERE s.shard = $1 AND s.fire_time = $2 AND s.uid = $3`
	selectOldSlots = `SELECT s.fire_time, s.uid, s.state, s.attempt, s.finished_at,
		coalesce((SELECT j.policies FROM jobs j WHERE j.shard = s.shard AND j.uid = s.uid), '{}') FROM slots s
		WHERE s.shard = $1 AND (s.fire_time, s.uid) > ($2, $3) AND s.fire_time < $4 ORDER BY s.fire_time, s.uid LIMIT $5`
	selectEndedJobs = `SELECT j.uid, j.ended_at FROM jobs j
		WHERE j.shard = $1 AND j.ended_at IS NOT NULL AND (j.ended_at, j.uid) > ($2, $3) AND j.ended_at < $4 ORDER BY j.ended_at, j.uid LIMIT $5`
	selectOldest = `SELECT coalesce((SELECT min(r.fire_time) FROM requests r WHERE r.shard = $1 AND r.fire_time >= $2), 0),
		coalesce((SELECT min(e.at) FROM events e WHERE e.shard = $1 AND e.at >= $3), 0),
		coalesce((SELECT min(k.made_at) FROM skips k WHERE k.shard = $1 AND k.made_at >= $4), 0)`
	selectSpent = `SELECT (SELECT count(*) FROM (SELECT 1 FROM dead_letters d WHERE d.shard = $1 AND d.uid = $2 LIMIT 1) dead)
		+ (SELECT count(*) FROM slots s WHERE s.shard = $1 AND s.uid = $2 AND s.trigger IN (2, 3) AND (s.state IN (1, 2, 4) OR s.finished_at >= $4))
		+ (SELECT count(*) FROM slots s WHERE s.shard = $1 AND s.fire_time = $3 AND s.uid = $2 AND (s.state IN (1, 2, 4) OR s.finished_at >= $4))`
	selectDoneJobs = `SELECT x.uid, x.at,
			(SELECT count(*) FROM slots s WHERE s.shard = x.shard AND s.fire_time = x.fire_at AND s.uid = x.uid AND (s.state IN (1, 2, 4) OR s.finished_at >= $4))
			+ (SELECT count(*) FROM slots s WHERE s.shard = x.shard AND s.uid = x.uid AND s.trigger IN (2, 3) AND (s.state IN (1, 2, 4) OR s.finished_at >= $4))
			+ (SELECT count(*) FROM inbox i WHERE i.shard = x.shard AND i.uid = x.uid) + CASE WHEN x.quarantine IS NULL THEN 0 ELSE 1 END
		FROM (SELECT j.shard, j.uid, j.fire_at, j.quarantine, coalesce(j.fire_at, j.created_at) AS at FROM jobs j
			WHERE j.shard = $1 AND j.kind < 3 AND j.ended_at IS NULL AND (coalesce(j.fire_at, j.created_at), j.uid) > ($2, $3) AND coalesce(j.fire_at, j.created_at) < $4
			ORDER BY coalesce(j.fire_at, j.created_at), j.uid LIMIT $5) x
		ORDER BY x.at, x.uid`
)

// People's questions.
const (
	jobByName = `SELECT ` + storekit.JobColumns + ` FROM jobs j
		WHERE j.namespace = $1 AND j.name = $2 AND j.shard = $3 ORDER BY j.ended_at IS NULL DESC, j.ended_at DESC LIMIT 1`
	jobByUID = `SELECT ` + storekit.JobColumns + ` FROM shards h JOIN jobs j ON j.shard = h.shard AND j.uid = $1 LIMIT 1`
	jobUIDs  = `SELECT j.uid FROM jobs j WHERE j.namespace = $1 AND j.name = $2 AND j.shard = $3 ORDER BY j.ended_at IS NULL DESC, j.ended_at DESC`
	jobByReq = `SELECT ` + storekit.JobColumns + ` FROM jobs j WHERE j.shard = $1 AND j.namespace = $2 AND j.request_id = $3`
	listJobs = `SELECT ` + storekit.JobColumns + ` FROM jobs j
		WHERE j.namespace = $1 AND (j.name, j.uid) > ($2, $3) AND ($4 OR j.ended_at IS NULL) ORDER BY j.name, j.uid LIMIT $5`
	slotsByKey = `SELECT ` + storekit.SlotColumns + ` FROM unnest($2::INT8[], $3::BYTEA[]) AS k (fire_time, uid)
		JOIN slots s ON s.shard = $1 AND s.fire_time = k.fire_time AND s.uid = k.uid`
	unscheduled = `SELECT ` + storekit.SlotColumns + ` FROM slots s
		WHERE s.shard = $1 AND s.uid = $2 AND s.trigger IN (2, 3) AND s.fire_time < $3 ORDER BY s.fire_time DESC LIMIT $4`
	keysBefore  = `SELECT s.fire_time, s.uid FROM slots s WHERE s.shard = $1 AND (s.fire_time, s.uid) < ($2, $3) ORDER BY s.fire_time DESC, s.uid DESC LIMIT $4`
	countShards = `SELECT count(*) FROM shards`
	newestSlots = `SELECT ` + storekit.SlotColumns + `, ` + storekit.JobColumns + slotJoin + `
		WHERE s.shard = $1 AND (s.fire_time, s.uid) < ($2, $3) AND s.fire_time >= $4 ORDER BY s.fire_time DESC, s.uid DESC LIMIT $5`
	countSlots = `SELECT x.state, x.fire_time - x.fire_time % $5, count(*), count(CASE WHEN j.namespace = $4 THEN 1 END)
		FROM (SELECT s.shard, s.state, s.fire_time, s.uid FROM slots s WHERE s.shard = $1 AND s.fire_time >= $2 ORDER BY s.fire_time DESC, s.uid DESC LIMIT $3) x
		JOIN jobs j ON j.shard = x.shard AND j.uid = x.uid GROUP BY 1, 2`
	countDead    = `SELECT 4, count(*) FROM dead_letters WHERE namespace = $1 AND fire_time < $2`
	countBacklog = `SELECT CASE WHEN b.waiting THEN 1 ELSE 2 END, count(*) FROM backlog b JOIN jobs j ON j.shard = b.shard AND j.uid = b.uid
		WHERE j.namespace = $1 AND b.fire_time < $2 GROUP BY 1`
	listAttempts   = `SELECT ` + storekit.AttemptColumns + ` FROM attempts a WHERE a.shard = $1 AND a.fire_time = $2 AND a.uid = $3 ORDER BY a.attempt`
	selectRetained = `SELECT retained_from FROM shards WHERE shard = $1`
	listDead       = `SELECT ` + storekit.DeadLetterColumns + ` FROM dead_letters d
		WHERE (d.shard, d.fire_time, d.uid) > ($1, $2, $3) ORDER BY d.shard, d.fire_time, d.uid LIMIT $4`
	groupDead = `SELECT d.handler, d.fingerprint, d.error_code, max(d.sample), count(*), min(d.dead_at), max(d.dead_at)
		FROM dead_letters d WHERE d.namespace = $1 GROUP BY d.handler, d.fingerprint, d.error_code
		ORDER BY count(*) DESC, d.handler, d.fingerprint, d.error_code LIMIT $2`
	listSkips     = `SELECT ` + storekit.SkipColumns + ` FROM skips k WHERE k.shard = $1 AND k.uid = $2 AND k.to_time >= $3 ORDER BY k.to_time LIMIT $4`
	listEvents    = selectEvents + `epoch DESC, seq DESC LIMIT $2`
	selectEvents  = `SELECT seq, at, kind, uid, fire_time, detail FROM events WHERE shard = $1 ORDER BY `
	touchHandlers = `INSERT INTO handlers (name, created_at, last_seen_at) SELECT u.name, $2, $2 FROM unnest($1::TEXT[]) AS u (name)
		ON CONFLICT (name) DO UPDATE SET last_seen_at = greatest(handlers.last_seen_at, excluded.last_seen_at)`
	selectHandlers = `SELECT name, created_at, last_seen_at FROM handlers `
	handlerByName  = selectHandlers + `WHERE name = $1`
	listHandlers   = selectHandlers + `WHERE name > $1 ORDER BY name LIMIT $2`

	insertCalendar = `INSERT INTO calendars (namespace, name, version, description, items, deleted, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`
	selectCalendars = `SELECT ` + storekit.CalendarColumns + ` FROM calendars c WHERE c.namespace = $1 AND `
	selectCalendar  = selectCalendars + `c.name = $2 AND c.version = $3`
	newestCalendar  = selectCalendars + `c.name = $2 ORDER BY c.version DESC LIMIT 1`
	listCalendars   = selectCalendars + `c.name > $2 AND NOT c.deleted
		AND c.version = (SELECT max(n.version) FROM calendars n WHERE n.namespace = c.namespace AND n.name = c.name)
		ORDER BY c.name LIMIT $3`
)

// The audit of a shard.
const (
	auditShard    = `SELECT owner, epoch, owner_gen, owner_rev, watermark, open_from, retained_from FROM shards WHERE shard = $1`
	auditEpochs   = `SELECT epoch, owner, owner_gen, owner_rev, taken_at FROM epochs WHERE shard = $1 ORDER BY epoch`
	auditJobs     = `SELECT ` + storekit.JobColumns + ` FROM jobs j WHERE j.shard = $1 ORDER BY j.uid`
	auditInbox    = `SELECT uid FROM inbox WHERE shard = $1 ORDER BY uid`
	auditSlots    = `SELECT ` + storekit.SlotColumns + ` FROM slots s WHERE s.shard = $1 ORDER BY s.fire_time, s.uid`
	auditAttempts = `SELECT a.fire_time, a.uid, ` + storekit.AttemptColumns + ` FROM attempts a WHERE a.shard = $1 ORDER BY a.fire_time, a.uid, a.attempt`
	auditBacklog  = `SELECT waiting, handler, priority, fairness, ready_at, fire_time, uid, wake_at, coalesce(check_at, 0) FROM backlog
		WHERE shard = $1 ORDER BY waiting, handler, priority, fairness, ready_at, fire_time, uid`
	auditDead   = `SELECT ` + storekit.DeadLetterColumns + ` FROM dead_letters d WHERE d.shard = $1 ORDER BY d.fire_time, d.uid`
	auditSkips  = `SELECT ` + storekit.SkipColumns + ` FROM skips k WHERE k.shard = $1 ORDER BY k.uid, k.to_time`
	auditEvents = selectEvents + `epoch, seq`
)

// Statements are all statements that this package sends, by name, for those who
// check them. Migrations and what one database alone understands are not among them.
func Statements() map[string]string {
	return map[string]string{
		"moveWatermarks":        moveWatermarks,
		"insertJobs":            insertJobs,
		"endJobs":               endJobs,
		"quarantineJob":         quarantineJob,
		"insertRequests":        insertRequests,
		"insertSlots":           insertSlots,
		"insertSlotsOfJobs":     insertSlotsOfJobs,
		"insertSlotsOfRequests": insertSlotsOfRequests,
		"updateSlots":           updateSlots,
		"insertAttempts":        insertAttempts,
		"setLates":              setLates,
		"deleteBacklog":         deleteBacklog,
		"insertBacklog":         insertBacklog,
		"insertDead":            insertDead,
		"deleteDead":            deleteDead,
		"insertGap":             insertGap,
		"changeGap":             changeGap,
		"moveGap":               moveGap,
		"closeGap":              closeGap,
		"insertSkips":           insertSkips,
		"pruneSkips":            pruneSkips,
		"loadCheckAt":           loadCheckAt,
		"waitingToCheck":        waitingToCheck,
		"listSkips":             listSkips,
		"auditSkips":            auditSkips,
		"pruneAttempts":         pruneAttempts,
		"pruneDead":             pruneDead,
		"pruneSlots":            pruneSlots,
		"pruneJobs":             pruneJobs,
		"pruneRequests":         pruneRequests,
		"pruneEvents":           pruneEvents,
		"deleteInbox":           deleteInbox,
		"insertEvents":          insertEvents,
		"selectEpoch":           selectEpoch,
		"selectFence":           selectFence,
		"selectRival":           selectRival,
		"selectRequest":         selectRequest,
		"selectCursor":          selectCursor,
		"selectSlot":            selectSlot,
		"selectNow":             selectNow,
		"insertCount":           insertCount,
		"selectCount":           selectCount,
		"insertShards":          insertShards,
		"raiseRevision":         raiseRevision,
		"lockRow":               lockRow,
		"takeRow":               takeRow,
		"raiseTry":              raiseTry,
		"renewRow":              renewRow,
		"giveUpRows":            giveUpRows,
		"auditGivenUp":          auditGivenUp,
		"selectOwners":          selectOwners,
		"insertCluster":         insertCluster,
		"selectCluster":         selectCluster,
		"auditTake":             auditTake,
		"insertInto":            insertInto,
		"selectGaps":            selectGaps,
		"loadRecurring":         loadRecurring,
		"loadWatermark":         loadWatermark,
		"loadEnded":             loadEnded,
		"loadOpen":              loadOpen,
		"loadClaimed":           loadClaimed,
		"loadBacklog":           loadBacklog,
		"selectOnce":            selectOnce,
		"waitingOf":             waitingOf,
		"waitingOfJob":          waitingOfJob,
		"selectInbox":           selectInbox,
		"inboxShards":           inboxShards,
		"selectSlotOf":          selectSlotOf,
		"selectOldSlots":        selectOldSlots,
		"selectEndedJobs":       selectEndedJobs,
		"selectOldest":          selectOldest,
		"selectSpent":           selectSpent,
		"selectDoneJobs":        selectDoneJobs,
		"jobByName":             jobByName,
		"jobByUID":              jobByUID,
		"jobUIDs":               jobUIDs,
		"jobByReq":              jobByReq,
		"listJobs":              listJobs,
		"slotsByKey":            slotsByKey,
		"unscheduled":           unscheduled,
		"keysBefore":            keysBefore,
		"countShards":           countShards,
		"newestSlots":           newestSlots,
		"countSlots":            countSlots,
		"countDead":             countDead,
		"countBacklog":          countBacklog,
		"listAttempts":          listAttempts,
		"selectRetained":        selectRetained,
		"listDead":              listDead,
		"groupDead":             groupDead,
		"listEvents":            listEvents,
		"touchHandlers":         touchHandlers,
		"handlerByName":         handlerByName,
		"listHandlers":          listHandlers,
		"insertCalendar":        insertCalendar,
		"selectCalendar":        selectCalendar,
		"newestCalendar":        newestCalendar,
		"listCalendars":         listCalendars,
		"auditShard":            auditShard,
		"auditEpochs":           auditEpochs,
		"auditJobs":             auditJobs,
		"auditInbox":            auditInbox,
		"auditSlots":            auditSlots,
		"auditAttempts":         auditAttempts,
		"auditBacklog":          auditBacklog,
		"auditDead":             auditDead,
		"auditEvents":           auditEvents,
		"lockFence":             lockFence,
	}
}
