//go:build unix

package execrun_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/carillon-scheduler/carillon/workersdk/execrun"
	"github.com/carillon-scheduler/carillon/workersdk/workersdktest"
)

// A shell script as a handler. On a worker: worker.Handle(w, "backup", backup.Handle).
func ExampleProgram_Handle() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "backup.sh")
	if err := os.WriteFile(script, []byte(`#!/bin/sh
read -r params
echo "backing up by $params, attempt $CARILLON_ATTEMPT"
echo '{"files": 12}' > "$CARILLON_RESULT"
[ "$CARILLON_ATTEMPT" -gt 1 ] || exit 75 # not yet: try again
`), 0o700); err != nil {
		log.Fatal(err)
	}
	backup, err := execrun.New(script)
	if err != nil {
		log.Fatal(err)
	}
	for attempt := range 2 {
		o, err := workersdktest.Run(context.Background(), backup.Handle, []byte(`{"target":"tape"}`), workersdktest.Attempt(attempt+1))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s%s\n", o.State, o.Text, o.Result)
	}
	// Output:
	// FAILED: exit status 75
	// backing up by {"target":"tape"}, attempt 1
	// SUCCEEDED: {"files":12}
}
