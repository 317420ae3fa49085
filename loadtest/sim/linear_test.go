package sim

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func TestWhatIsExplained(t *testing.T) {
	given := func(attempt int32, at time.Duration) *operation {
		return &operation{kind: opClaim, attempt: attempt, began: at, end: at}
	}
	told := func(attempt int32, began, end time.Duration, accepted bool) *operation {
		return &operation{kind: opReport, attempt: attempt, success: true, began: began, end: end, accepted: accepted}
	}
	row := func(state job.State, attempt int32) job.Slot { return job.Slot{State: state, Attempt: attempt} }
	for what, c := range map[string]struct {
		operations []*operation
		row        job.Slot
		want       bool
	}{
		"one success":                                 {[]*operation{given(1, 1), told(1, 2, 3, true)}, row(job.Succeeded, 1), true},
		"one success, and the row is gone":            {[]*operation{given(1, 1), told(1, 2, 3, true)}, job.Slot{}, true},
		"one success that isn't there":                {[]*operation{given(1, 1), told(1, 2, 3, true)}, row(job.Ready, 1), false},
		"a success of another attempt":                {[]*operation{given(1, 1), told(1, 2, 3, true)}, row(job.Succeeded, 2), false},
		"a second attempt, and its success":           {[]*operation{given(1, 1), given(2, 5), told(2, 6, 7, true)}, row(job.Succeeded, 2), true},
		"two successes":                               {[]*operation{given(1, 1), told(1, 2, 3, true), given(2, 4), told(2, 5, 6, true)}, row(job.Succeeded, 2), false},
		"a success while the next attempt had begun":  {[]*operation{given(1, 1), given(2, 2), told(1, 3, 4, true)}, row(job.Succeeded, 1), false},
		"a success that may have come before that":    {[]*operation{given(1, 1), told(1, 2, 9, false), given(2, 5), told(2, 6, 7, true)}, row(job.Succeeded, 2), true},
		"a success that was refused, and is there":    {[]*operation{given(1, 1), told(1, 2, 3, false)}, row(job.Succeeded, 1), false},
		"an answer that was lost, and it was written": {[]*operation{given(1, 1), told(1, 2, 0, false)}, row(job.Succeeded, 1), true},
		"an answer that was lost, and it wasn't":      {[]*operation{given(1, 1), told(1, 2, 0, false), given(2, 9)}, row(job.Running, 2), true},
		"an attempt after the success":                {[]*operation{given(1, 1), told(1, 2, 3, true)}, row(job.Running, 2), false},
		"claims out of order":                         {[]*operation{given(2, 4), given(1, 5)}, row(job.Running, 2), false},
		"an attempt that ended before it was written": {[]*operation{given(1, 1)}, row(job.Cancelled, 2), true},
		"a success of what nobody was given":          {nil, row(job.Succeeded, 1), false},
	} {
		if got := explained(c.operations, c.row); got != c.want {
			t.Errorf("%s: explained %v", what, got)
		}
	}
}
