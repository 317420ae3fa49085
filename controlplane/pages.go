package controlplane

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
)

// Bounds of a page.
const (
	defaultPageSize = 50
	maxPageSize     = 1000
	maxPageBytes    = 1 << 20
)

// pageToken is what a page token holds: where to go on, and for which request.
type pageToken struct {
	Request string          `json:"r"`
	Cursor  json.RawMessage `json:"c"`
}

// pageSize returns the effective page size.
func pageSize(v *violations, asked int32) int {
	if asked < 0 {
		v.add("page_size", reasonInvalidField, "must not be negative")
	}
	if asked <= 0 {
		return defaultPageSize
	}
	return min(int(asked), maxPageSize)
}

// requestPrint is the fingerprint of a list request without its place: a token
// may be used only with the request that it came from. clear empties the
// page_size and page_token of the copy that it gets.
func requestPrint[T proto.Message](req T, clear func(T)) string {
	plain := proto.CloneOf(req)
	clear(plain)
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(plain)
	if err != nil {
		return "unprintable" // no token was ever made for it
	}
	sum := sha256.Sum256(append([]byte(fmt.Sprintf("%T", req)), b...))
	return hex.EncodeToString(sum[:8])
}

// encodeToken makes the token of the next page.
func encodeToken(print string, cursor any) string {
	c, err := json.Marshal(cursor)
	if err != nil {
		panic("controlplane: a cursor can always be written as JSON: " + err.Error())
	}
	b, err := json.Marshal(pageToken{Request: print, Cursor: c})
	if err != nil {
		panic("controlplane: a token can always be written as JSON: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// decodeToken reads a token into cursor. An empty token leaves cursor as it is.
func decodeToken(v *violations, token, print string, cursor any) {
	if token == "" {
		return
	}
	const foreign = "is not a token of this request; begin again without one"
	b, err := base64.RawURLEncoding.DecodeString(token)
	var t pageToken
	if err != nil || strictJSON(b, &t) != nil || t.Request != print || strictJSON(t.Cursor, cursor) != nil {
		v.add("page_token", reasonInvalidPageToken, foreign)
	}
}

func strictJSON(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// cutByBytes returns how many of the messages fit a page. It is at least one.
func cutByBytes[T proto.Message](messages []T) int {
	total := 0
	for i, m := range messages {
		if total += proto.Size(m); total > maxPageBytes && i > 0 {
			return i
		}
	}
	return len(messages)
}

// nearest returns the known words that resemble a misspelt one, best first.
func nearest(word string, known []string) []string {
	const most = 3
	var found []string
	for limit := 1; limit <= 3 && len(found) < most; limit++ {
		for _, k := range known {
			if len(found) < most && distance(strings.ToLower(word), strings.ToLower(k)) == limit {
				found = append(found, k)
			}
		}
	}
	return found
}

// distance is the edit distance of two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
