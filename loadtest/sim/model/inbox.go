package model

import (
	"context"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
)

// Submit implements store.Inbox.
func (m *Store) Submit(ctx context.Context, jobs []job.Job) (existing []*job.Job, stored bool, err error) {
	if err := m.enter(ctx); err != nil {
		return nil, false, err
	}
	defer m.leave()
	if err := m.checkJobs(jobs); err != nil {
		return nil, false, err
	}
	at := m.now()
	existing, stored = make([]*job.Job, len(jobs)), true
	var added []*job.Job
	for i := range jobs {
		j := &jobs[i]
		j.CreatedAt, j.EffectiveFrom = at, at
		rival, isNew := m.submit(j)
		if existing[i] = rival; isNew {
			added = append(added, j)
		}
		if rival != nil && !repeats(j, rival) {
			stored = false
		}
	}
	if !stored {
		m.withdraw(added)
	}
	return existing, stored, nil
}

// checkJobs refuses jobs that can't be stored.
func (m *Store) checkJobs(jobs []job.Job) error {
	for i := range jobs {
		j := &jobs[i]
		if m.shard(j.Shard) == nil {
			return notFound("shard %d", j.Shard)
		}
		if err := checkSize(j.Shard, j.UID, j.Params); err != nil {
			return err
		}
	}
	return nil
}

// submit adds a job with its inbox row, or returns the job that stands in its way.
func (m *Store) submit(j *job.Job) (rival *job.Job, isNew bool) {
	s := m.shard(j.Shard)
	if m.putJob(s, j) {
		s.inbox.insert(j.UID, struct{}{})
		return nil, true
	}
	stands := s.rival(j)
	if stands.UID == j.UID {
		return nil, false // an earlier send of this request
	}
	c := copyJob(stands)
	return &c, false
}

// repeats reports whether a job is asked for by the request that made another one.
func repeats(j, made *job.Job) bool {
	return made.RequestID != "" && made.RequestID == j.RequestID && made.RequestHash == j.RequestHash
}

// withdraw takes jobs back that were added by the call that now adds none.
func (m *Store) withdraw(added []*job.Job) {
	for _, j := range added {
		s := m.shard(j.Shard)
		row, _ := s.jobs.get(j.UID)
		m.dropJob(s, row)
		s.inbox.delete(j.UID)
	}
}

// InboxShards implements store.Loader.
func (m *Store) InboxShards(ctx context.Context) ([]shard.ID, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.leave()
	var ids []shard.ID
	for _, s := range m.shards {
		if s.inbox.size > 0 {
			ids = append(ids, s.id)
		}
	}
	return ids, nil
}

// Drain implements store.Loader.
func (m *Store) Drain(ctx context.Context, p shard.Proof, limit int) ([]job.Job, error) {
	s, err := m.ownedRead(ctx, p)
	if err != nil {
		return nil, err
	}
	defer m.leave()
	var jobs []job.Job
	for uid := range s.inbox.all() {
		if len(jobs) == limit {
			break
		}
		if j, found := s.jobs.get(uid); found {
			jobs = append(jobs, copyJob(j))
		}
	}
	return jobs, nil
}
