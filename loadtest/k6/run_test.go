package k6

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// run is one execution of a script: what k6 does with it, but for the rates, and as far
// as the scripts go. What they don't use isn't there, and using it is an error.
type run struct {
	ctx    context.Context // of every request: JavaScript has none to pass on
	files  fs.FS
	script string
	env    map[string]string

	options    options
	iterations map[string]*atomic.Int64 // of the whole test, by scenario

	mu       sync.Mutex
	requests []request        // guarded by mu
	checks   map[string]tally // guarded by mu; by name
	problems []error          // guarded by mu
	made     []func() error   // guarded by mu; ends connections
}

// request is one that was sent.
type request struct {
	stage  string // setup, teardown, or the scenario's name
	method string // of the API
	metric string // that k6 times it by
	tags   map[string]string
}

// tally counts what came of a check.
type tally struct{ passed, failed int }

// options are what a script may set; of k6's many options, those that the scripts use.
type options struct {
	Scenarios  map[string]scenario `json:"scenarios"`
	Thresholds map[string][]string `json:"thresholds"`
}

type scenario struct {
	Executor        string `json:"executor"`
	Exec            string `json:"exec"`
	Rate            int    `json:"rate"`
	TimeUnit        string `json:"timeUnit"`
	Duration        string `json:"duration"`
	PreAllocatedVUs int    `json:"preAllocatedVUs"`
}

// execute runs setup, every scenario with some VUs at the same time, each for some
// iterations, and teardown. It returns all that was wrong.
func (r *run) execute(vus, iterations int) error {
	r.iterations, r.checks = map[string]*atomic.Int64{}, map[string]tally{}
	defer r.close()
	if err := r.readOptions(); err != nil {
		return err
	}
	data, err := r.once("setup", "null")
	if err != nil {
		return errors.Join(append(r.problems, err)...)
	}
	r.scenarios(data, vus, iterations)
	if _, err := r.once("teardown", data); err != nil {
		r.problem(err)
	}
	r.judge()
	return errors.Join(r.problems...)
}

// readOptions evaluates the script, as k6 does before all else, and reads its options.
func (r *run) readOptions() error {
	v, err := newVU(r)
	if err != nil {
		return err
	}
	text, err := v.exported("options")
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r.options); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	var errs []error
	for name, s := range r.options.Scenarios {
		r.iterations[name] = &atomic.Int64{}
		if err := s.check(name, v); err != nil {
			errs = append(errs, fmt.Errorf("scenario %s: %w", name, err))
		}
	}
	for on, expressions := range r.options.Thresholds {
		errs = append(errs, checkThreshold(on, expressions))
	}
	if len(r.options.Scenarios) == 0 {
		errs = append(errs, errors.New("options: there is no scenario"))
	}
	return errors.Join(errs...)
}

var scenarioName = regexp.MustCompile(`^[0-9a-zA-Z_-]+$`)

func (s scenario) check(name string, v *vu) error {
	switch {
	case !scenarioName.MatchString(name):
		return errors.New("k6 takes no such name")
	case s.Executor != "constant-arrival-rate":
		return fmt.Errorf("its executor is %q", s.Executor)
	case s.Rate < 1 || s.PreAllocatedVUs < 1:
		return fmt.Errorf("rate %d and preAllocatedVUs %d must be at least 1", s.Rate, s.PreAllocatedVUs)
	case !v.exportsFunction(s.Exec):
		return fmt.Errorf("the script exports no function %q", s.Exec)
	}
	_, err1 := time.ParseDuration(s.TimeUnit)
	_, err2 := time.ParseDuration(s.Duration)
	return errors.Join(err1, err2)
}

// once runs a function that runs once, in a VU of its own, and returns as JSON what it
// returned.
func (r *run) once(function, data string) (string, error) {
	v, err := newVU(r)
	if err != nil {
		return "", err
	}
	v.at = &moment{stage: function}
	return v.call(function, data)
}

// scenarios runs all scenarios at the same time.
func (r *run) scenarios(data string, vus, iterations int) {
	var all sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(r.options.Scenarios)) {
		for range vus {
			all.Go(func() { r.iterate(name, data, iterations) })
		}
	}
	all.Wait()
}

// iterate is one VU of a scenario. An exception ends its iteration only, as in k6.
func (r *run) iterate(name, data string, iterations int) {
	v, err := newVU(r)
	if err != nil {
		r.problem(err)
		return
	}
	for range iterations {
		v.at = &moment{stage: name, scenario: name, iteration: r.iterations[name].Add(1) - 1}
		if _, err := v.call(r.options.Scenarios[name].Exec, data); err != nil {
			r.problem(fmt.Errorf("scenario %s: %w", name, err))
		}
	}
}

// judge adds what was wrong on the whole: a check that failed, a threshold that says
// something of no request.
func (r *run) judge() {
	for name, t := range r.checks {
		if t.failed > 0 {
			r.problem(fmt.Errorf("check %q failed %d of %d times", name, t.failed, t.passed+t.failed))
		}
	}
	if len(r.checks) == 0 {
		r.problem(errors.New("the script checks nothing"))
	}
	for on := range r.options.Thresholds {
		metric, tags := splitThreshold(on)
		if strings.HasSuffix(metric, "_req_duration") && !slices.ContainsFunc(r.requests, func(q request) bool { return q.metric == metric && q.has(tags) }) {
			r.problem(fmt.Errorf("the threshold of %s is about no request", on))
		}
	}
}

func (q request) has(tags map[string]string) bool {
	for key, value := range tags {
		if q.tags[key] != value {
			return false
		}
	}
	return true
}

// sent counts a scenario's requests by the method that they called.
func (r *run) sent() map[string]int {
	count := map[string]int{}
	for _, q := range r.requests {
		if _, ok := r.options.Scenarios[q.stage]; ok {
			count[q.method]++
		}
	}
	return count
}

func (r *run) problem(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, err)
}

func (r *run) request(q request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, q)
}

func (r *run) checked(name string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.checks[name]
	if ok {
		t.passed++
	} else {
		t.failed++
	}
	r.checks[name] = t
}

func (r *run) atEnd(end func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made = append(r.made, end)
}

func (r *run) close() {
	for _, end := range r.made {
		_ = end() // a script may have closed it
	}
}

// metrics are those of k6 that thresholds are set on, with how each may be aggregated.
var metrics = map[string]*regexp.Regexp{
	"checks":             regexp.MustCompile(`^rate$`),
	"dropped_iterations": regexp.MustCompile(`^(count|rate)$`),
	"http_req_failed":    regexp.MustCompile(`^rate$`),
	"http_req_duration":  regexp.MustCompile(`^(avg|min|max|med|p\(\d+(\.\d+)?\))$`),
	"grpc_req_duration":  regexp.MustCompile(`^(avg|min|max|med|p\(\d+(\.\d+)?\))$`),
}

var thresholdExpression = regexp.MustCompile(`^([a-z]+(?:\([\d.]+\))?)\s*(?:<|<=|>|>=|==|===|!=)\s*\d+(?:\.\d+)?$`)

func checkThreshold(on string, expressions []string) error {
	metric, _ := splitThreshold(on)
	aggregation, ok := metrics[metric]
	if !ok {
		return fmt.Errorf("threshold: there is no metric %q", metric)
	}
	if len(expressions) == 0 {
		return fmt.Errorf("threshold of %s: it says nothing", on)
	}
	for _, e := range expressions {
		if m := thresholdExpression.FindStringSubmatch(e); m == nil || !aggregation.MatchString(m[1]) {
			return fmt.Errorf("threshold of %s: k6 doesn't understand %q", on, e)
		}
	}
	return nil
}

// splitThreshold splits metric{tag:value,tag:value}.
func splitThreshold(on string) (metric string, tags map[string]string) {
	metric, selector, _ := strings.Cut(strings.TrimSuffix(on, "}"), "{")
	tags = map[string]string{}
	for pair := range strings.SplitSeq(selector, ",") {
		if key, value, ok := strings.Cut(pair, ":"); ok {
			tags[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return metric, tags
}
