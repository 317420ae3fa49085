package aesgcm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	worker "github.com/carillon-scheduler/carillon/workersdk"
	"github.com/carillon-scheduler/carillon/workersdk/aesgcm"
)

var _ worker.Codec = (*aesgcm.Codec)(nil)

var keys = map[string][]byte{"old": bytes.Repeat([]byte{1}, 16), "new": bytes.Repeat([]byte{2}, 32)}

func codec(t *testing.T, current string, opts ...aesgcm.Option) *aesgcm.Codec {
	t.Helper()
	c, err := aesgcm.New(current, keys, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhatIsEncryptedComesBack(t *testing.T) {
	plain := []byte(`{"iban":"DE02 1203"}`)
	const about = "params of namespaces/default/jobs/j"
	sealed, err := codec(t, "old").Encode(about, plain)
	if err != nil || !json.Valid(sealed) || bytes.Contains(sealed, []byte("1203")) {
		t.Fatalf("%s, %v", sealed, err)
	}
	again, err := codec(t, "old").Encode(about, plain)
	if err != nil || bytes.Equal(sealed, again) {
		t.Error("the same text looks the same twice")
	}
	c := codec(t, "new")
	if got, err := c.Decode(about, sealed); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("%s, %v", got, err)
	}
	for what, d := range map[string]struct{ about, data, want string }{
		"of another job": {"params of namespaces/default/jobs/k", string(sealed), "belongs to something else"},
		"changed":        {about, strings.Replace(string(sealed), `"data":"`, `"data":"AAAA`, 1), "was changed"},
		"an unknown key": {about, strings.Replace(string(sealed), `"old"`, `"lost"`, 1), `key "lost"`},
		"another key":    {about, strings.Replace(string(sealed), `"old"`, `"new"`, 1), "another one"},
		"too short":      {about, `{"encrypted":"AES-GCM","key":"old","data":"AAAA"}`, "was changed"},
		"by others":      {about, `{"encrypted":"ROT13","key":"old","data":"AAAA"}`, "ROT13"},
		"plain":          {about, `{"a":1}`, "isn't encrypted"},
		"no JSON":        {about, `{`, "isn't encrypted"},
	} {
		if got, err := c.Decode(d.about, []byte(d.data)); err == nil || !strings.Contains(err.Error(), d.want) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}

func TestPlainText(t *testing.T) {
	if _, err := codec(t, "new").Decode("x", []byte("1")); !errors.Is(err, aesgcm.ErrPlain) {
		t.Error(err)
	}
	if got, err := codec(t, "new", aesgcm.AcceptPlain()).Decode("x", []byte(`{"a":1}`)); err != nil || string(got) != `{"a":1}` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestKeysThatCantBeUsed(t *testing.T) {
	if _, err := aesgcm.New("lost", keys); err == nil || !strings.Contains(err.Error(), `"lost"`) {
		t.Error(err)
	}
	if _, err := aesgcm.New("k", map[string][]byte{"k": make([]byte, 17)}); err == nil || !strings.Contains(err.Error(), "17 bytes") {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	c, err := aesgcm.New("new", keys)
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := c.Encode("x", []byte("text"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := c.Decode("x", data); err == nil && string(got) != "text" {
			t.Errorf("%q was taken for %q", data, got)
		}
	})
}
