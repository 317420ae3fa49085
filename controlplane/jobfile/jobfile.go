// Package jobfile reads files of jobs, in YAML or JSON, in the form of the API.
package jobfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/carillon-scheduler/carillon/controlplane/jsonmap"
	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Bounds of a file.
const (
	MaxBytes = 64 << 20
	MaxJobs  = 100_000
)

// Entry is a job of a file.
type Entry struct {
	Line int    // where it begins
	Name string // its name's last part
	Job  *carillonv1.Job
	Err  error // why it can't be read; Job is nil then
}

// Read reads the jobs of a file: a list of them, a mapping whose jobs are one (as the API
// lists them), or one job, in any number of documents. Each is a Job as the API takes it,
// and has a name, alone or as namespaces/{namespace}/jobs/{job} with the given namespace.
// What is wrong with one job is in its entry, and harms no other; the error is of the file
// as a whole.
func Read(data []byte, namespace string) (entries []Entry, err error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("must be at most %d bytes, has %d", MaxBytes, len(data))
	}
	documents := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var node yaml.Node
		if err := documents.Decode(&node); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("is neither YAML nor JSON: %w (a text that begins with * or @ needs quotes)", err)
		}
		jobs, err := jobsOf(node.Content[0])
		if err != nil {
			return nil, err
		}
		for _, one := range jobs {
			if entries = append(entries, read(one, namespace)); len(entries) > MaxJobs {
				return nil, fmt.Errorf("holds more than %d jobs", MaxJobs)
			}
		}
	}
	if len(entries) == 0 {
		return nil, errors.New("holds no job")
	}
	distinct(entries)
	return entries, nil
}

// jobsOf returns what may be the jobs of a document.
func jobsOf(n *yaml.Node) ([]*yaml.Node, error) {
	switch {
	case n.Kind == yaml.SequenceNode:
		return n.Content, nil
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null": // an empty document
		return nil, nil
	case n.Kind != yaml.MappingNode:
		return []*yaml.Node{n}, nil
	}
	var jobs, other *yaml.Node
	for i := 0; i < len(n.Content); i += 2 {
		switch key := n.Content[i]; key.Value {
		case "jobs":
			jobs = n.Content[i+1]
		case "nextPageToken", "next_page_token": // of an answer of the API
		default:
			other = key
		}
	}
	switch {
	case jobs == nil:
		return []*yaml.Node{n}, nil
	case other != nil:
		return nil, fmt.Errorf("line %d: %q is no key beside jobs", other.Line, other.Value)
	case jobs.Kind != yaml.SequenceNode:
		return nil, fmt.Errorf("line %d: jobs must be a list", jobs.Line)
	}
	return jobs.Content, nil
}

func read(n *yaml.Node, namespace string) Entry {
	e := Entry{Line: n.Line}
	if e.Name, e.Job, e.Err = parse(n, namespace); e.Err != nil {
		e.Job, e.Err = nil, fmt.Errorf("line %d: %w", n.Line, e.Err)
	}
	return e
}

func parse(n *yaml.Node, namespace string) (name string, j *carillonv1.Job, err error) {
	value, err := new(converter).plain(n)
	if err != nil {
		return "", nil, err
	}
	m, ok := value.(map[string]any)
	if !ok {
		return "", nil, errors.New("is not a mapping")
	}
	full, _ := m["name"].(string)
	name = full[strings.LastIndexByte(full, '/')+1:]
	text, err := json.Marshal(m)
	if err != nil {
		return name, nil, err
	}
	j = &carillonv1.Job{}
	if err := jsonmap.New(true).Unmarshal(text, j); err != nil {
		return name, nil, plainError(err)
	}
	switch parent := strings.TrimSuffix(full, "jobs/"+name); {
	case full == "":
		return "", nil, errors.New("name: is required")
	case full != name && parent != "namespaces/"+namespace+"/":
		return name, nil, fmt.Errorf("name: %s is not in namespaces/%s; choose the namespace", full, namespace)
	}
	if err := job.CheckJobName(name); err != nil {
		return name, nil, fmt.Errorf("name: %w", err)
	}
	return name, j, nil
}

// place is what the reader of JSON says of places, which are not those of the file.
var place = regexp.MustCompile(`(proto:)?[\s\x{a0}]*(syntax error )?\(line \d+:\d+\):[\s\x{a0}]*`)

// plainError makes an error of JSON one of the file.
func plainError(err error) error {
	text := place.ReplaceAllString(err.Error(), "")
	if strings.Contains(text, "google.protobuf.Duration") {
		text += ` (in seconds, such as "5400s")`
	}
	return errors.New(text)
}

// distinct notes which names are taken twice.
func distinct(entries []Entry) {
	lines := map[string]int{}
	for i := range entries {
		e := &entries[i]
		if first, taken := lines[e.Name]; taken && e.Err == nil {
			e.Job, e.Err = nil, fmt.Errorf("line %d: the job of line %d has the same name", e.Line, first)
		} else if e.Err == nil {
			lines[e.Name] = e.Line
		}
	}
}

// What aliases may blow a document up to.
const (
	maxNodes = 10_000_000
	maxDepth = 1000
)

// converter turns nodes of YAML into what they are in JSON.
type converter struct{ nodes, depth int }

// plain returns what a node of YAML is in JSON. Times stay the text that they are:
// parameters are to arrive as they were written.
func (c *converter) plain(n *yaml.Node) (any, error) {
	c.nodes++
	c.depth++
	defer func() { c.depth-- }()
	if c.nodes > maxNodes || c.depth > maxDepth {
		return nil, errors.New("its aliases make it too large")
	}
	switch n.Kind {
	case yaml.AliasNode:
		return c.plain(n.Alias)
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			var err error
			if list[i], err = c.plain(item); err != nil {
				return nil, err
			}
		}
		return list, nil
	case yaml.MappingNode:
		return c.mapping(n)
	}
	if tag := n.ShortTag(); tag == "!!timestamp" || tag == "!!str" {
		return n.Value, nil
	}
	var v any
	err := n.Decode(&v)
	return v, err
}

func (c *converter) mapping(n *yaml.Node) (any, error) {
	m := make(map[string]any, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		if _, twice := m[key.Value]; twice || key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
			return nil, fmt.Errorf("line %d: %q is no key, or is there twice", key.Line, key.Value)
		}
		value, err := c.plain(n.Content[i+1])
		if err != nil {
			return nil, err
		}
		m[key.Value] = value
	}
	return m, nil
}
