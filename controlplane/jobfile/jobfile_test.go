package jobfile

import (
	"strings"
	"testing"
)

func names(entries []Entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

func TestFiles(t *testing.T) {
	for text, want := range map[string]string{
		"name: a\nhandler: h\nschedule: {cron: '0 2 * * *'}":                                                              "a",
		"- {name: a, schedule: {cron: \"@daily\"}}\n- name: namespaces/default/jobs/b\n  params: {n: 1, x: [true, null]}": "a b",
		"jobs:\n- name: a\n---\n\n---\n---\n# c\n---\nname: b":                                                            "a b",
		`[{"name":"a","schedule":{"interval":{"every":"60s","anchor":"2026-12-01T00:00:00Z"}}}]`:                          "a",
		`{"jobs":[{"name":"a"},{"name":"b"}]}`:                                                                            "a b",
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
		"":                                "no job",
		"# nothing":                       "no job",
		"hello":                           "job 1: is not a mapping",
		"- name: a\n- 7":                  "job 2: is not a mapping",
		"handler: h":                      "job 1: name: is required",
		"name: a b":                       "name",
		"name: namespaces/other/jobs/a":   "name",
		"name: a\nhandle: h":              "handle",
		"name: a\nschedule: {cron: 7}":    "cron",
		"- name: a\n- name: b\n- name: a": "jobs 1 and 3 are both named a",
		"name: a\nschedule: {spread: 5m}": "spread",
		"a: [":                            "YAML",
		"name: a\nname: b":                "YAML",
		"jobs: [{name: a}]\nversion: 1":   "jobs",
	} {
		entries, err := Read([]byte(text), "default")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", text, names(entries), err, want)
		}
	}
}
