package checker

import (
	"cmp"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// I8.
func epochsGrow(w *world, v *view) {
	newest := store.TakeOver{}
	for i, t := range v.TakeOvers {
		if t.Epoch <= newest.Epoch || claimOrder(t, newest) < 0 {
			w.complain(v, job.SlotKey{}, "epoch %d of claim (%d, %d) follows epoch %d of claim (%d, %d)",
				t.Epoch, t.Gen, t.Rev, newest.Epoch, newest.Gen, newest.Rev)
		}
		if i > 0 && w.before(t.At, newest.At) {
			w.complain(v, job.SlotKey{}, "epoch %d began at %s, before the one that it follows, at %s", t.Epoch, t.At, newest.At)
		}
		newest = t
	}
	// An owner may have put a later claim in the place of the one under which it took the shard.
	if v.Epoch != newest.Epoch || v.Gen != newest.Gen || v.Rev < newest.Rev {
		w.complain(v, job.SlotKey{}, "stands at epoch %d of claim (%d, %d); the last take-over was epoch %d of claim (%d, %d)",
			v.Epoch, v.Gen, v.Rev, newest.Epoch, newest.Gen, newest.Rev)
	}
}

func claimOrder(a, b store.TakeOver) int {
	return cmp.Or(cmp.Compare(a.Gen, b.Gen), cmp.Compare(a.Rev, b.Rev))
}

// I10.
func jobsAreKept(w *world) {
	homes := map[job.UID]shard.ID{}
	named := map[string]job.UID{} // live ones
	for _, v := range w.views {
		for i := range v.Jobs {
			j := &v.Jobs[i]
			if first, twice := homes[j.UID]; twice {
				w.complain(v, job.SlotKey{UID: j.UID}, "has the uid of a job in shard %d", first)
			}
			homes[j.UID] = v.Shard
			if j.Shard != v.Shard || shard.Of(j.Namespace, j.Name, len(w.Shards)) != v.Shard {
				w.complain(v, job.SlotKey{UID: j.UID}, "is in another shard than its name %s says", j.ResourceName())
			}
			if j.EndedAt != 0 {
				continue
			}
			if first, twice := named[j.ResourceName()]; twice {
				w.complain(v, job.SlotKey{UID: j.UID}, "has the name of the live job %s", first)
			}
			named[j.ResourceName()] = j.UID
		}
	}
	ledgerAgrees(w, homes)
}

// nowhere is the shard of what no shard has.
var nowhere = &view{Audit: &store.Audit{Shard: -1}}

func ledgerAgrees(w *world, homes map[job.UID]shard.ID) {
	for _, uid := range w.Ledger.Acked {
		if _, there := homes[uid]; !there && !w.mayBeGone(uid) {
			w.complain(nowhere, job.SlotKey{UID: uid}, "was acknowledged and is not there")
		}
	}
	for _, uid := range w.Ledger.Refused {
		if _, there := homes[uid]; there {
			w.complain(nowhere, job.SlotKey{UID: uid}, "was refused and is in shard %d", homes[uid])
		}
	}
}
