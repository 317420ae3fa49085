package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxDocumentBytes bounds parameters and results.
const MaxDocumentBytes = 256 << 10

// maxDocumentDepth bounds how deeply arrays and objects are nested, so that no
// reader in any language runs out of stack.
const maxDocumentDepth = 1000

// CheckDocument reports what is wrong with a JSON document. A document is kept
// byte for byte, so what it can't be is decided here and nowhere later: it is
// valid UTF-8 and valid JSON, holds no NUL (which PostgreSQL can't store as
// JSON), and is bounded in size and depth.
func CheckDocument(doc []byte) error {
	switch {
	case len(doc) > MaxDocumentBytes:
		return fmt.Errorf("must be at most %d bytes, has %d", MaxDocumentBytes, len(doc))
	case !utf8.Valid(doc):
		return errors.New("must be valid UTF-8")
	case !json.Valid(doc):
		return errors.New("must be one valid JSON document")
	case depth(doc) > maxDocumentDepth:
		return fmt.Errorf("must be nested at most %d deep", maxDocumentDepth)
	case holdsNUL(doc):
		return errors.New(`must not hold the character NUL (\u0000)`)
	}
	return nil
}

// depth returns how deeply a valid document is nested.
func depth(doc []byte) int {
	deepest, now, inString := 0, 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

// holdsNUL reports whether a valid document holds an escaped NUL. A raw one is
// no valid JSON.
func holdsNUL(doc []byte) bool {
	for rest := doc; ; {
		i := bytes.Index(rest, []byte(`\u0000`))
		if i < 0 {
			return false
		}
		slashes := 0
		for j := i - 1; j >= 0 && rest[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return true
		}
		rest = rest[i+1:]
	}
}

// MaxErrorBytes bounds the text of a failure.
const MaxErrorBytes = 16 << 10

// CleanText makes any bytes a text that every store can hold: valid UTF-8
// without NUL, cut to limit bytes between two characters. A failure is recorded
// whatever a handler's error says.
func CleanText(b []byte, limit int) string {
	s := strings.ToValidUTF8(string(b), "\uFFFD")
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if len(s) <= limit {
		return s
	}
	const mark = "… (cut)"
	cut := limit - len(mark)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}
