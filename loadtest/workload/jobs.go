package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The handler that is measured, and the one of workers without work.
const (
	Handler     = "bench.run"
	IdleHandler = "bench.idle"
)

// What parameters begin with: of a job whose first attempts fail, and of one whose attempts
// take a time of their own.
const (
	failing = `{"fail":true`
	taking  = `{"work":`
)

// ParamsOfWork are parameters of a job whose attempts take a time.
func ParamsOfWork(takes time.Duration) string { return fmt.Sprintf(`%s"%s"}`, taking, takes) }

// workOf is how long an attempt takes. Only parameters that name a time are parsed.
func workOf(params []byte, otherwise time.Duration) time.Duration {
	if !bytes.HasPrefix(params, []byte(taking)) {
		return otherwise
	}
	var p struct{ Work string }
	if err := json.Unmarshal(params, &p); err != nil {
		return otherwise
	}
	takes, err := time.ParseDuration(p.Work)
	if err != nil {
		return otherwise
	}
	return takes
}

// Params are parameters of a size, in bytes, if it isn't too small.
func Params(size int, fails bool) string {
	begin := `{"tenant":"acme","n":12345`
	if fails {
		begin = failing
	}
	if pad := size - len(begin) - len(`,"pad":""}`); pad > 0 {
		return begin + `,"pad":"` + strings.Repeat("x", pad) + `"}`
	}
	return begin + "}"
}

// JobName is the name of a job by its number.
func JobName(n int) string { return "bench-" + strconv.Itoa(n) }

// NumberOf reads the number out of a job's resource name, or -1.
func NumberOf(resource string) int64 {
	_, digits, ok := strings.Cut(resource, "/jobs/bench-")
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil {
		return -1
	}
	return n
}
