package main

import (
	"strings"
	"testing"
)

const (
	pass     = `{"Action":"pass","Package":"p","Test":"T"}`
	fail     = `{"Action":"output","Package":"p","Test":"T","Output":"it broke\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"T"}`
	skip     = `{"Action":"output","Package":"p","Test":"T","Output":"no such tool\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"T"}`
	packFail = `{"Action":"fail","Package":"p"}`
)

func TestGate(t *testing.T) {
	for _, c := range []struct {
		name, in string
		ci       bool
		code     int
		says     string
	}{
		{"passes", pass, true, 0, "1 passed, 0 failed, 0 skipped"},
		{"a failure is shown", pass + "\n" + fail, false, 1, "it broke"},
		{"a package that fails outside of tests", pass + "\n" + packFail, false, 1, "1 failed"},
		{"a build that fails", pass + "\n" + `{"Action":"build-fail","ImportPath":"p"}`, false, 1, "1 failed"},
		{"a skip under CI", pass + "\n" + skip, true, 1, "not on the list: p T: no such tool"},
		{"a skip elsewhere", pass + "\n" + skip, false, 0, "1 skipped"},
		{"nothing ran", "", false, 1, "no test ran"},
		{"other text is shown", pass + "\nplain text", false, 0, "plain text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gate{output: map[key][]string{}}
			var out strings.Builder
			if err := g.read(strings.NewReader(c.in), &out); err != nil {
				t.Fatal(err)
			}
			if code := g.close(&out, c.ci); code != c.code || !strings.Contains(out.String(), c.says) {
				t.Errorf("code %d, said %q; want %d and %q", code, out.String(), c.code, c.says)
			}
		})
	}
}
