package process

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestWhatAProcessUsed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells it")
	}
	if err := os.WriteFile(filepath.Join(t.TempDir(), "file"), []byte("a few bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	used, ok := UsageOf(os.Getpid())
	if peak := Peak(os.Getpid()); !ok || used.Memory == 0 || used.Written == 0 || peak < used.Memory/2 {
		t.Errorf("this process used %+v, %v, and at most %d bytes", used, ok, peak)
	}
	if used, ok := UsageOf(1 << 30); ok || Peak(1<<30) != 0 {
		t.Errorf("no process used %+v", used)
	}
}
