package jobfile

import (
	"strings"
	"testing"
)

func names(entries []Entry) string {
	var all []string
	for _, e := range entries {
		if e.Err == nil {
			all = append(all, e.Name)
		}
	}
	return strings.Join(all, " ")
}

func TestFiles(t *testing.T) {
	for text, want := range map[string]string{
		"name: a\nhandler: h\nschedule: {cron: '0 2 * * *'}":                                                              "a",
		"- {name: a, schedule: {cron: \"@daily\"}}\n- name: namespaces/default/jobs/b\n  params: {n: 1, x: [true, null]}": "a b",
		"jobs:\n- name: a\n---\n\n---\n---\n# c\n---\nname: b":                                                            "a b",
		`[{"name":"a","schedule":{"interval":{"every":"60s","anchor":"2026-12-01T00:00:00Z"}}}]`:                          "a",
		`{"jobs":[{"name":"a"},{"name":"b"}],"nextPageToken":""}`:                                                         "a b",
	} {
		entries, err := Read([]byte(text), "default")
		if got := names(entries); err != nil || got != want {
			t.Errorf("%s\n%s, %v; want %s", text, got, err, want)
		}
	}
	entries, err := Read([]byte("name: a\nschedule:\n  cron: 0 2 * * *\n  startTime: 2026-12-01T00:00:00Z\n  spread: 300s\n  calendars: [closed]\n  maxOccurrences: 10\nparams:\n  text: \"é\\n\"\n  big: 9007199254740993\n  day: 2026-12-24\n  again: &x {a: 1}\n  same: *x"), "default")
	if err != nil {
		t.Fatal(err)
	}
	s := entries[0].Job.GetSchedule()
	if s.GetCron() != "0 2 * * *" || s.GetStartTime().GetSeconds() != 1796083200 || s.GetSpread().GetSeconds() != 300 || s.GetCalendars()[0] != "closed" || s.GetMaxOccurrences() != 10 {
		t.Errorf("%v", s)
	}
	if got := entries[0].Job.GetParams().GetText(); !strings.Contains(got, "9007199254740993") || !strings.Contains(got, "é") || !strings.Contains(got, `"2026-12-24"`) || !strings.Contains(got, `"same":{"a":1}`) {
		t.Errorf("params %s", got)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "no job",
		"# nothing":                     "no job",
		"a: [":                          "YAML",
		"cron: * * * * *":               "needs quotes",
		"jobs: [{name: a}]\nversion: 1": "line 2: \"version\"",
		"jobs: {name: a}":               "must be a list",
	} {
		entries, err := Read([]byte(text), "default")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", text, names(entries), err, want)
		}
	}
}

// A job that is wrong doesn't hide the others, and says where it is.
func TestJobsThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"hello":                           "line 2: is not a mapping",
		"{handler: h}":                    "line 2: name: is required",
		"{name: a b}":                     "name",
		"{name: namespaces/other/jobs/a}": "choose the namespace",
		"{name: a, handle: h}":            `unknown field "handle"`,
		"{name: a, schedule: {cron: 7}}":  "cron",
		"{name: last}":                    "line 3: the job of line 2 has the same name",
		"{name: a, schedule: {interval: {every: 90m}}}": `"5400s"`,
		"{name: a, name: b}":                            "is there twice",
		"{<<: {name: a}}":                               "no key",
		"{name: a, params: {n: .inf}}":                  "line 2",
		"{name: a, params: &a [*a]}":                    "aliases",
		"{a: &a [x,x,x,x,x,x,x,x,x,x], b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a], c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b], d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c], e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d], f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e], g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f], h: [*g,*g,*g]}": "aliases",
	} {
		entries, err := Read([]byte("jobs:\n- "+text+"\n- {name: last}\n"), "default")
		if err != nil || len(entries) != 2 {
			t.Errorf("%s: %v, %v", text, names(entries), err)
			continue
		}
		wrong := entries[0]
		if wrong.Err == nil {
			wrong = entries[1]
		}
		if wrong.Err == nil || wrong.Job != nil || !strings.Contains(wrong.Err.Error(), want) || strings.Contains(wrong.Err.Error(), "proto:") || strings.Contains(wrong.Err.Error(), "(line") {
			t.Errorf("%s: %v, want %q", text, wrong.Err, want)
		}
		if names(entries) != "last" {
			t.Errorf("%s: %s could be read", text, names(entries))
		}
	}
}
