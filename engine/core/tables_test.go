package core

import (
	"math/rand/v2"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// The table holds what a map would, whatever is added and removed in whatever order,
// and uids that share a place are kept apart.
func TestJobTableIsAMap(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		var table jobTable
		model := map[job.UID]*jobState{}
		uidOf := func() (uid job.UID) {
			uid[7], uid[15] = byte(r.IntN(16)), byte(r.IntN(1+int(seed)*10))
			return uid
		}
		for range 5000 {
			uid := uidOf()
			switch there := model[uid]; {
			case there == nil:
				model[uid] = &jobState{uid: uid}
				table.add(model[uid])
			case r.IntN(2) == 0:
				table.remove(there)
				delete(model, uid)
			}
			probe := uidOf()
			if table.get(probe) != model[probe] || table.len() != len(model) {
				t.Fatalf("seed %d: the table differs from a map", seed)
			}
		}
		for uid, j := range model {
			if table.get(uid) != j || table.at(j.ref) != j {
				t.Fatalf("seed %d: job %v is lost", seed, uid)
			}
		}
		for j := range table.all() {
			if model[j.uid] != j {
				t.Fatalf("seed %d: job %v is still there", seed, j.uid)
			}
			delete(model, j.uid)
			table.remove(j)
		}
		if table.len() != 0 || len(model) != 0 {
			t.Fatalf("seed %d: %d jobs were not walked over", seed, len(model))
		}
	}
}
