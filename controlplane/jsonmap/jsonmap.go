// Package jsonmap maps the API's messages to JSON and back, for the REST gateway
// and the command line.
package jsonmap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Marshaler maps messages. It differs from the usual mapping in two ways: unknown
// fields are refused, and a carillon.v1.Json stands in the JSON as the document
// that it carries, byte for byte, so that no number and no spacing is lost on the
// way.
type Marshaler struct{ runtime.JSONPb }

var _ runtime.Marshaler = (*Marshaler)(nil)

// New returns a Marshaler. With protoNames, fields are written as in the .proto
// files (fire_time), else in the way of JSON (fireTime); both are read.
func New(protoNames bool) *Marshaler {
	return &Marshaler{runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{EmitUnpopulated: true, UseProtoNames: protoNames},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: false},
	}}
}

// documentName is the message that stands for a JSON document.
var documentName = (&carillonv1.Json{}).ProtoReflect().Descriptor().FullName()

// Marshal implements runtime.Marshaler.
func (m *Marshaler) Marshal(v any) ([]byte, error) {
	b, err := m.JSONPb.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := descriptorOf(v)
	if d == nil {
		return b, nil
	}
	return walkMessage(b, d, openDocument)
}

// Unmarshal implements runtime.Marshaler. What it refuses it names by the path of
// its field, where the text has one: field "schedule.runAt": ….
func (m *Marshaler) Unmarshal(data []byte, v any) error {
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return err // also for text behind the value, which a decoder would leave
	}
	if d := descriptorOf(v); d != nil {
		var err error
		if data, err = walkMessage(data, d, closeDocument); err != nil {
			return err
		}
	}
	err := m.JSONPb.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	if path := pathOf(data, err.Error()); path != "" {
		return fmt.Errorf("field %q: %w", path, err)
	}
	return err
}

// pathOf returns the path of the field at the place that an error names, as in
// "(line 1:40): …".
func pathOf(data []byte, message string) string {
	_, place, found := strings.Cut(message, "(line ")
	var line, column int
	if n, err := fmt.Sscanf(place, "%d:%d)", &line, &column); !found || n != 2 || err != nil {
		return ""
	}
	offset := column - 1
	for rest := data; line > 1; line-- {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			return ""
		}
		offset, rest = offset+i+1, rest[i+1:]
	}
	return pathAt(data, int64(offset))
}

// place is where one stands in an open object or list.
type place struct {
	object bool
	key    string // of an object's value; empty before it
	index  int    // of a list's value
}

// pathAt returns the path of the value that holds the byte at an offset, as in
// "results[2].outcome".
func pathAt(data []byte, offset int64) string {
	d := json.NewDecoder(bytes.NewReader(data))
	var open []place
	ended := func() { // a value has
		if n := len(open); n > 0 {
			open[n-1].key = ""
			open[n-1].index++
		}
	}
	for {
		t, err := d.Token()
		if err != nil {
			return ""
		}
		text, isText := t.(string)
		n := len(open)
		isKey := isText && n > 0 && open[n-1].object && open[n-1].key == ""
		if isKey {
			open[n-1].key = text
		}
		if d.InputOffset() > offset {
			return pathOfPlaces(open)
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			open = append(open, place{object: t == json.Delim('{')})
		case json.Delim('}'), json.Delim(']'):
			open = open[:n-1]
			ended()
		default:
			if !isKey {
				ended()
			}
		}
	}
}

func pathOfPlaces(open []place) string {
	var path strings.Builder
	for _, p := range open {
		switch {
		case !p.object:
			fmt.Fprintf(&path, "[%d]", p.index)
		case p.key != "":
			path.WriteString("." + p.key)
		}
	}
	return strings.TrimPrefix(path.String(), ".")
}

// NewDecoder implements runtime.Marshaler.
func (m *Marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(data)) == 0 {
			return io.EOF
		}
		if err := m.Unmarshal(data, v); !errors.Is(err, io.EOF) {
			return err
		}
		return io.ErrUnexpectedEOF // an EOF would mean: no body
	})
}

// NewEncoder implements runtime.Marshaler.
func (m *Marshaler) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		b, err := m.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(append(b, '\n'))
		return err
	})
}

// descriptorOf returns the descriptor of a message, or of what a pointer to a
// message points to; nil for anything else.
func descriptorOf(v any) protoreflect.MessageDescriptor {
	if m, ok := v.(proto.Message); ok {
		return m.ProtoReflect().Descriptor()
	}
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Pointer {
		return nil
	}
	if m, ok := reflect.New(t.Elem().Elem()).Interface().(proto.Message); ok {
		return m.ProtoReflect().Descriptor()
	}
	return nil
}

// closeDocument wraps a document as the message that carries it. A null, as in
// every mapping, means that the field isn't set.
func closeDocument(raw []byte) ([]byte, error) {
	if string(raw) == "null" {
		return raw, nil
	}
	if !utf8.Valid(raw) {
		return nil, errors.New("must be valid UTF-8")
	}
	text, err := marshalText(string(raw))
	if err != nil {
		return nil, err
	}
	return append(append([]byte(`{"text":`), text...), '}'), nil
}

// openDocument takes a document out of its message. An empty one is null.
func openDocument(raw []byte) ([]byte, error) {
	if string(raw) == "null" {
		return raw, nil
	}
	var m struct{ Text string }
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	if m.Text == "" {
		return []byte("null"), nil
	}
	return []byte(m.Text), nil
}

// marshalText writes a JSON string without escaping <, > and &.
func marshalText(s string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(s)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// walkMessage rewrites the documents in the JSON of a message and leaves every
// other byte of meaning alone.
func walkMessage(data []byte, d protoreflect.MessageDescriptor, rewrite func([]byte) ([]byte, error)) ([]byte, error) {
	if d.FullName() == documentName {
		return rewrite(data)
	}
	if !holdsDocument(d, nil) || !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return data, nil
	}
	return walkObject(data, func(key string, value []byte) ([]byte, error) {
		field := d.Fields().ByJSONName(key)
		if field == nil {
			field = d.Fields().ByTextName(key)
		}
		if field == nil || field.Message() == nil || field.IsMap() {
			return value, nil // what is unknown is refused by the mapping itself
		}
		if !field.IsList() {
			return walkMessage(value, field.Message(), rewrite)
		}
		return walkList(value, func(element []byte) ([]byte, error) {
			return walkMessage(element, field.Message(), rewrite)
		})
	})
}

// holdsDocument reports whether a message can hold a document.
func holdsDocument(d protoreflect.MessageDescriptor, seen []protoreflect.FullName) bool {
	if d.FullName() == documentName {
		return true
	}
	for _, name := range seen {
		if name == d.FullName() {
			return false
		}
	}
	seen = append(seen, d.FullName())
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if f.Message() != nil && !f.IsMap() && holdsDocument(f.Message(), seen) {
			return true
		}
	}
	return false
}

// walkObject rewrites the values of a JSON object, in order, duplicates included.
func walkObject(data []byte, rewrite func(key string, value []byte) ([]byte, error)) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	out := []byte{'{'}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok {
			return nil, errors.New("an object's key must be a string")
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		rewritten, err := rewrite(name, value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		text, err := marshalText(name)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, text...), ':'), rewritten...)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	return append(out, '}'), trailing(d)
}

// walkList rewrites the elements of a JSON array; anything else stays as it is.
func walkList(data []byte, rewrite func([]byte) ([]byte, error)) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte("[")) {
		return data, nil
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(data, &elements); err != nil {
		return nil, err
	}
	out := []byte{'['}
	for i, e := range elements {
		rewritten, err := rewrite(e)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, rewritten...)
	}
	return append(out, ']'), nil
}

// trailing refuses what stands behind an object.
func trailing(d *json.Decoder) error {
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected text behind the JSON object")
	}
	return nil
}
