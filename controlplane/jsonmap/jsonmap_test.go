package jsonmap_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/carillon-scheduler/carillon/controlplane/jsonmap"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// A document keeps every byte on its way in and out: 64-bit numbers, the order
// and spelling of keys, the spacing.
func TestDocumentsSurviveByteForByte(t *testing.T) {
	for _, doc := range []string{
		`{"n":9007199254740993,"m":-9223372036854775808,"f":1.10,"e":1E400}`,
		`{ "b" : 1,   "a":2, "a":3 }`,
		`"text with \u0041 and \" and <&>"`, `[]`, `{}`, `0`, `true`, `[1, [2, [3]]]`, "{\n\t\"x\": 1\n}",
	} {
		m := jsonmap.New(false)
		var j carillonv1.Job
		if err := m.Unmarshal([]byte(`{"handler":"h","params":`+doc+`}`), &j); err != nil {
			t.Errorf("%s: %v", doc, err)
			continue
		}
		if j.GetParams().GetText() != doc {
			t.Errorf("read %q, want %q", j.GetParams().GetText(), doc)
		}
		out, err := m.Marshal(&j)
		if err != nil {
			t.Errorf("%s: %v", doc, err)
			continue
		}
		if !bytes.Contains(out, []byte(`"params":`+doc)) {
			t.Errorf("wrote %s, want the document %s in it", out, doc)
		}
	}
}

func TestDocumentsInsideListsAndMessages(t *testing.T) {
	m := jsonmap.New(false)
	in := `{"parent":"namespaces/n","requests":[{"job":{"params":{"a": 1}}},{"job":{"params":null}},{"job":{"params":[2]}}]}`
	var req carillonv1.BatchCreateJobsRequest
	if err := m.Unmarshal([]byte(in), &req); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`{"a": 1}`, ``, `[2]`} {
		if got := req.GetRequests()[i].GetJob().GetParams().GetText(); got != want {
			t.Errorf("request %d: %q, want %q", i, got, want)
		}
	}
}

func TestAPointerToAMessage(t *testing.T) {
	m := jsonmap.New(false)
	var j *carillonv1.Job
	if err := m.NewDecoder(strings.NewReader(`{"params":{"x": 1}}`)).Decode(&j); err != nil {
		t.Fatal(err)
	}
	if j.GetParams().GetText() != `{"x": 1}` {
		t.Errorf("read %v", j)
	}
}

func TestRefusals(t *testing.T) {
	for name, in := range map[string]string{
		"unknown field":           `{"timeuot":"1s"}`,
		"unknown nested field":    `{"retryPolicy":{"max":1}}`,
		"text behind":             `{"handler":"h"} x`,
		"two objects":             `{"handler":"h"}{"handler":"i"}`,
		"half a document":         `{"params":{"a":`,
		"bad document":            `{"params":{a:1}}`,
		"no object":               `[1]`,
		"text behind no document": `{} x`,
		"a field twice":           `{"handler":"a","handler":"b"}`,
		"enum in lower case":      `{"state":"job_state_active"}`,
		"year 10000":              `{"schedule":{"runAt":"10000-01-01T00:00:00Z"}}`,
	} {
		var j carillonv1.Job
		if err := jsonmap.New(false).Unmarshal([]byte(in), &j); err == nil {
			t.Errorf("%s: %s was accepted as %v", name, in, &j)
		}
	}
}

// What the mapping refuses is named by its path.
func TestRefusalsNameTheField(t *testing.T) {
	for in, path := range map[string]string{
		`{"schedule":{"runAt":"10000-01-01T00:00:00Z"}}`:          "schedule.runAt",
		"{\n \"handler\": \"h\",\n \"attemptTimeout\": \"10\"\n}": "attemptTimeout",
		`{"schedule":{"cron":"x","immediate":{}}}`:                "schedule.immediate",
		`{"retryPolicy":{"maxAttempts":"many"}}`:                  "retryPolicy.maxAttempts",
		`{"handler":5}`:                                           "handler",
		`{"params":{"a":[1,{"b":2}]},"state":"NOPE"}`:             "state",
	} {
		var j carillonv1.Job
		if err := jsonmap.New(false).Unmarshal([]byte(in), &j); err == nil || !strings.HasPrefix(err.Error(), `field "`+path+`"`) {
			t.Errorf("%s: %v, want field %s", in, err, path)
		}
	}
}

// Also in a list, whose elements are counted.
func TestRefusalsNameTheElement(t *testing.T) {
	for path, in := range map[string]string{
		"results[0].outcome":     `{"results":[{"outcome":"SUCCESS"}]}`,
		"results[2].token.epoch": `{"workerId":"w","results":[{"token":{"shard":1}},{},{"token":{"shard":1,"epoch":"x"}}]}`,
	} {
		var req carillonv1.FinishRequest
		if err := jsonmap.New(false).Unmarshal([]byte(in), &req); err == nil || !strings.HasPrefix(err.Error(), `field "`+path+`"`) {
			t.Errorf("%s: %v, want field %s", in, err, path)
		}
	}
}

func TestZeroValuesAreWritten(t *testing.T) {
	out, err := jsonmap.New(false).Marshal(&carillonv1.Slot{})
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(out, &fields); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{"attempt": 0.0, "epoch": "0", "worker": "", "state": "SLOT_STATE_UNSPECIFIED", "result": nil} {
		if got, there := fields[field]; !there || got != want {
			t.Errorf("%s is %v (%v), want %v", field, got, there, want)
		}
	}
}

// FuzzMarshaler: whatever is read can be written, as valid JSON, and read again
// as the same message.
func FuzzMarshaler(f *testing.F) {
	for _, seed := range []string{`{}`, `{"params":{"a":[1,2]}}`, `{"params":null}`, `{"schedule":{"cron":"* * * * *"},"params":" "}`, `{"params":{"text":"x"}}`} {
		f.Add([]byte(seed))
	}
	m := jsonmap.New(false)
	f.Fuzz(func(t *testing.T, in []byte) {
		var first, second carillonv1.Job
		if m.Unmarshal(in, &first) != nil {
			return
		}
		out, err := m.Marshal(&first)
		if err != nil {
			t.Fatalf("%q was read as %v, which can't be written: %v", in, &first, err)
		}
		if !json.Valid(out) {
			t.Fatalf("wrote %q", out)
		}
		if err := m.Unmarshal(out, &second); err != nil {
			t.Fatalf("wrote %q, which can't be read: %v", out, err)
		}
		if !proto.Equal(&first, &second) {
			t.Fatalf("%v became %v", &first, &second)
		}
	})
}
