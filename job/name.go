package job

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// UID is the identity of a job, a UUID. Names are used again; uids never are.
type UID [16]byte

// IsZero reports whether u names nothing.
func (u UID) IsZero() bool { return u == UID{} }

// String returns u in the usual form, 8-4-4-4-12 lower-case hexadecimal digits.
func (u UID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], u[0:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:36], u[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// Less orders uids by their bytes, as the store does.
func (u UID) Less(o UID) bool { return string(u[:]) < string(o[:]) }

var errUID = errors.New("a uid is a UUID in lower case, such as 0198c0de-0000-7000-8000-000000000000")

// ParseUID reads what String wrote.
func ParseUID(s string) (UID, error) {
	var u UID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' || strings.ToLower(s) != s {
		return u, errUID
	}
	digits := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(u[:], []byte(digits)); err != nil {
		return UID{}, errUID
	}
	return u, nil
}

// MaxNameLength bounds the names of namespaces, jobs and handlers, in bytes. All
// of them are ASCII.
const MaxNameLength = 128

var (
	errName = errors.New("must be 1 to 128 letters, digits, '.', '_' or '-', beginning and ending with a letter or digit")
	errUUID = errors.New("must not be a UUID: those stand for uids")
	errText = errors.New("must be 1 to 128 printable ASCII characters without blanks")
	errID   = errors.New("must be 1 to 128 letters, digits, '.', '_', ':' or '-'")
)

// CheckName reports what is wrong with the name of a namespace, a handler or a
// calendar.
func CheckName(s string) error {
	if s == "" || len(s) > MaxNameLength || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return errName
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return errName
		}
	}
	return nil
}

// CheckJobName reports what is wrong with the name of a job: the grammar of
// CheckName, and not a UUID, since a uid may stand in a job's place.
func CheckJobName(s string) error {
	if err := CheckName(s); err != nil {
		return err
	}
	if _, err := ParseUID(strings.ToLower(s)); err == nil {
		return errUUID
	}
	return nil
}

// CheckRequestID reports what is wrong with a request id.
func CheckRequestID(s string) error {
	if s == "" || len(s) > MaxNameLength {
		return errText
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return errText
		}
	}
	return nil
}

// CheckWorkerID reports what is wrong with the id or incarnation of a worker.
func CheckWorkerID(s string) error {
	if s == "" || len(s) > MaxNameLength {
		return errID
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '.' && c != '_' && c != '-' && c != ':' {
			return errID
		}
	}
	return nil
}

// Bounds of labels.
const (
	MaxLabels      = 32
	MaxLabelLength = 63
)

var (
	errLabels     = fmt.Errorf("must be at most %d", MaxLabels)
	errLabelKey   = fmt.Errorf("a key must be 1 to %d letters, digits, '.', '_', '/' or '-', beginning and ending with a letter or digit", MaxLabelLength)
	errLabelValue = fmt.Errorf("a value must be at most %d letters, digits, '.', '_' or '-', beginning and ending with a letter or digit", MaxLabelLength)
)

// CheckLabels reports what is wrong with the labels of a job.
func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return errLabels
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if len(key) > MaxLabelLength || CheckName(strings.ReplaceAll(key, "/", "-")) != nil {
			return fmt.Errorf("%w: %q", errLabelKey, key)
		}
		if value := labels[key]; value != "" && (len(value) > MaxLabelLength || CheckName(value) != nil) {
			return fmt.Errorf("%w: %q of %s", errLabelValue, value, key)
		}
	}
	return nil
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
