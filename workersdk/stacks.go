package workersdk

import (
	"bytes"
	"runtime"
	"strconv"
)

// maxDump bounds the dump of all goroutines in which a stuck one is looked for.
const maxDump = 8 << 20

// goroutineID returns the number under which the calling goroutine stands in dumps,
// or 0.
func goroutineID() uint64 {
	var buf [64]byte
	head := buf[:runtime.Stack(buf[:], false)]
	head = bytes.TrimPrefix(head, []byte("goroutine "))
	number, _, _ := bytes.Cut(head, []byte(" "))
	id, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// dumpGoroutines returns the stacks of all goroutines. It stops the program for a
// moment.
func dumpGoroutines() []byte {
	for size := 256 << 10; ; size *= 4 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size || size >= maxDump {
			return buf[:n]
		}
	}
}

// stackIn picks one goroutine's stack out of a dump; nil if it isn't there.
func stackIn(dump []byte, id uint64) []byte {
	head := []byte("goroutine " + strconv.FormatUint(id, 10) + " ")
	for block := range bytes.SplitSeq(dump, []byte("\n\n")) {
		if bytes.HasPrefix(block, head) {
			return block[:min(len(block), maxStackBytes)]
		}
	}
	return nil
}
