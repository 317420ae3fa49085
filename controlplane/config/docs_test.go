package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/controlplane/config"
)

// The table in docs/configuration.md is the one that the program goes by.
func TestTheDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	const header = "| in the file | in the environment | flag | default | |\n|---|---|---|---|---|\n"
	_, table, found := strings.Cut(string(text), header)
	if !found {
		t.Fatalf("it lacks the table that begins with %s", header)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var want strings.Builder
	for _, k := range config.Keys() {
		otherwise := "none"
		if k.Default != "" {
			otherwise = "`" + k.Default + "`"
		}
		fmt.Fprintf(&want, "| `%s` | `%s` | `--%s` | %s | %s |\n", k.Name, k.Env, strings.Join(k.Flags, "`, `--"), otherwise, k.About)
	}
	if table+"\n" != want.String() {
		t.Errorf("the table should be\n%s", &want)
	}
}
