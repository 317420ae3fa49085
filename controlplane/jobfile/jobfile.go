// Package jobfile reads files of jobs, in YAML or JSON, in the form of the API.
package jobfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	Name string // its name's last part
	Job  *carillonv1.Job
}

// Read reads the jobs of a file: a list of them, a mapping whose jobs are one, or one
// job, in any number of documents. Each is a Job as the API takes it, and has a name,
// alone or as namespaces/{namespace}/jobs/{job} with the given namespace. An error names
// the job.
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
			return nil, fmt.Errorf("is neither YAML nor JSON: %w", err)
		}
		document, err := new(converter).plain(&node)
		if err != nil {
			return nil, fmt.Errorf("is neither YAML nor JSON: %w", err)
		}
		for _, one := range jobsOf(document) {
			e, err := read(one, namespace)
			if err != nil {
				return nil, fmt.Errorf("job %d%s: %w", len(entries)+1, named(e.Name), err)
			}
			if entries = append(entries, e); len(entries) > MaxJobs {
				return nil, fmt.Errorf("holds more than %d jobs", MaxJobs)
			}
		}
	}
	if len(entries) == 0 {
		return nil, errors.New("holds no job")
	}
	return entries, distinct(entries)
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
	case yaml.DocumentNode:
		return c.plain(n.Content[0])
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

func named(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", name)
}

// jobsOf returns what may be the jobs of a document.
func jobsOf(document any) []any {
	switch d := document.(type) {
	case nil:
		return nil // an empty one
	case []any:
		return d
	case map[string]any:
		if list, ok := d["jobs"].([]any); ok && len(d) == 1 {
			return list
		}
	}
	return []any{document}
}

func read(one any, namespace string) (e Entry, err error) {
	if _, ok := one.(map[string]any); !ok {
		return e, errors.New("is not a mapping")
	}
	text, err := json.Marshal(one)
	if err != nil {
		return e, err
	}
	e.Job = &carillonv1.Job{}
	if err := jsonmap.New(true).Unmarshal(text, e.Job); err != nil {
		return e, err
	}
	e.Name = strings.TrimPrefix(e.Job.GetName(), "namespaces/"+namespace+"/jobs/")
	if e.Name == "" {
		return e, errors.New("name: is required")
	}
	if err := job.CheckJobName(e.Name); err != nil {
		return e, fmt.Errorf("name: %w", err)
	}
	return e, nil
}

func distinct(entries []Entry) error {
	places := map[string]int{}
	for i, e := range entries {
		if first, taken := places[e.Name]; taken {
			return fmt.Errorf("jobs %d and %d are both named %s", first+1, i+1, e.Name)
		}
		places[e.Name] = i
	}
	return nil
}
