package k6

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/grafana/sobek"
)

// vu is one of k6's virtual users: a JavaScript runtime of its own, in which the script
// was evaluated anew. It is used by one goroutine.
type vu struct {
	run     *run
	rt      *sobek.Runtime
	exports *sobek.Object
	at      *moment // nil while the script is evaluated, where nothing may be sent
	modules map[string]sobek.ModuleRecord
}

// moment is what a VU does just now.
type moment struct {
	stage     string
	scenario  string // "" in setup and teardown
	iteration int64  // of the scenario, in the whole test
}

func newVU(r *run) (*vu, error) {
	v := &vu{run: r, rt: sobek.New(), modules: map[string]sobek.ModuleRecord{}}
	if err := v.rt.Set("__ENV", maps.Clone(r.env)); err != nil {
		return nil, err
	}
	record, err := v.resolve(nil, "./"+r.script)
	if err != nil {
		return nil, err
	}
	if err := record.Link(); err != nil {
		return nil, fmt.Errorf("link %s: %w", r.script, err)
	}
	evaluated := record.Evaluate(v.rt)
	if evaluated.State() != sobek.PromiseStateFulfilled {
		return nil, fmt.Errorf("evaluate %s: %v", r.script, evaluated.Result())
	}
	v.exports = v.rt.NamespaceObjectFor(record)
	return v, nil
}

// resolve finds what a script imports: a file beside it, or one of k6's own modules.
func (v *vu) resolve(_ any, specifier string) (sobek.ModuleRecord, error) {
	if known, ok := v.modules[specifier]; ok {
		return known, nil
	}
	var record sobek.ModuleRecord
	if file, ok := strings.CutPrefix(specifier, "./"); ok {
		text, err := fs.ReadFile(v.run.files, path.Clean(file))
		if err != nil {
			return nil, err
		}
		if record, err = sobek.ParseModule(file, string(text), v.resolve); err != nil {
			return nil, err
		}
	} else if exports := v.builtin(specifier); exports != nil {
		record = &builtin{exports}
	} else {
		return nil, fmt.Errorf("there is no module %q here", specifier)
	}
	v.modules[specifier] = record
	return record, nil
}

// builtin makes what one of k6's modules exports, or nil.
func (v *vu) builtin(name string) map[string]sobek.Value {
	switch name {
	case "k6":
		return map[string]sobek.Value{"check": v.rt.ToValue(v.check)}
	case "k6/execution":
		return map[string]sobek.Value{"default": v.strict(name, map[string]any{"scenario": v.scenario()})}
	case "k6/http":
		return map[string]sobek.Value{"default": v.strict(name, map[string]any{"request": v.httpRequest})}
	case "k6/net/grpc":
		return map[string]sobek.Value{"default": v.strict(name, map[string]any{"Client": v.newGRPCClient, "StatusOK": 0})}
	}
	return nil
}

// check is k6's: each of some functions is asked about a value. One that throws has
// failed, and ends the iteration.
func (v *vu) check(value sobek.Value, sets *sobek.Object) (bool, error) {
	if v.at == nil {
		return false, errors.New("nothing may be checked while the script is evaluated")
	}
	all := true
	for _, name := range sets.Keys() {
		ask, ok := sobek.AssertFunction(sets.Get(name))
		if !ok {
			return false, fmt.Errorf("check %q is no function", name)
		}
		answer, err := ask(sobek.Undefined(), value)
		good := err == nil && answer.ToBoolean()
		v.run.checked(name, good)
		if err != nil {
			return false, err
		}
		all = all && good
	}
	return all, nil
}

// scenario is what k6/execution tells of the scenario that runs. Outside of one there
// is nothing to tell.
func (v *vu) scenario() sobek.Value {
	o := v.rt.NewObject()
	for name, get := range map[string]func() any{
		"name":            func() any { return v.at.scenario },
		"iterationInTest": func() any { return v.at.iteration },
	} {
		getter := func() (any, error) {
			if v.at == nil || v.at.scenario == "" {
				return nil, errors.New("no scenario runs")
			}
			return get(), nil
		}
		if err := o.DefineAccessorProperty(name, v.rt.ToValue(getter), nil, sobek.FLAG_FALSE, sobek.FLAG_TRUE); err != nil {
			panic(err) // the object is new
		}
	}
	return v.strictObject("exec.scenario", o)
}

// strict makes an object whose properties are all that it has.
func (v *vu) strict(what string, properties map[string]any) sobek.Value {
	o := v.rt.NewObject()
	for name, value := range properties {
		if err := o.Set(name, value); err != nil {
			panic(err) // the object is new
		}
	}
	return v.strictObject(what, o)
}

// strictObject has a script that asks an object for what it hasn't fail: in JavaScript
// that would be undefined, and a misspelt name might go unseen.
func (v *vu) strictObject(what string, o *sobek.Object) sobek.Value {
	return v.rt.ToValue(v.rt.NewProxy(o, &sobek.ProxyTrapConfig{
		Get: func(target *sobek.Object, property string, _ sobek.Value) sobek.Value {
			value := target.Get(property)
			if value == nil && property != "toJSON" { // JSON.stringify asks for that
				panic(v.rt.NewTypeError("%s has no %s here", what, property))
			}
			return value
		},
		Set: func(_ *sobek.Object, property string, _, _ sobek.Value) bool {
			panic(v.rt.NewTypeError("%s.%s is not to be set", what, property))
		},
	}))
}

// call calls an exported function with data that came as JSON, and returns its result
// as JSON. A function that isn't there is fine for setup and teardown only.
func (v *vu) call(name, data string) (string, error) {
	function, ok := sobek.AssertFunction(v.exports.Get(name))
	if !ok && v.at.scenario == "" {
		return "null", nil
	}
	if !ok {
		return "", fmt.Errorf("the script exports no function %q", name)
	}
	argument, err := v.parse(data)
	if err != nil {
		return "", err
	}
	result, err := function(sobek.Undefined(), argument)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if _, async := result.Export().(*sobek.Promise); async {
		return "", fmt.Errorf("%s is async, which isn't done here", name)
	}
	if sobek.IsUndefined(result) {
		return "null", nil
	}
	text, err := result.ToObject(v.rt).MarshalJSON()
	return string(text), err
}

// parse makes a value of JSON.
func (v *vu) parse(text string) (sobek.Value, error) {
	parse, _ := sobek.AssertFunction(v.rt.Get("JSON").ToObject(v.rt).Get("parse"))
	return parse(sobek.Undefined(), v.rt.ToValue(text))
}

// exported returns an exported object as JSON.
func (v *vu) exported(name string) (string, error) {
	value := v.exports.Get(name)
	if value == nil || sobek.IsUndefined(value) {
		return "", fmt.Errorf("the script exports no %s", name)
	}
	text, err := value.ToObject(v.rt).MarshalJSON()
	return string(text), err
}

func (v *vu) exportsFunction(name string) bool {
	_, ok := sobek.AssertFunction(v.exports.Get(name))
	return ok
}

// builtin is a module that isn't written in JavaScript.
type builtin struct{ exports map[string]sobek.Value }

var _ sobek.ModuleRecord = (*builtin)(nil)

func (b *builtin) Link() error { return nil }

func (b *builtin) GetExportedNames(callback func([]string), _ ...sobek.ModuleRecord) bool {
	callback(slices.Sorted(maps.Keys(b.exports)))
	return true
}

func (b *builtin) ResolveExport(name string, _ ...sobek.ResolveSetElement) (*sobek.ResolvedBinding, bool) {
	if _, ok := b.exports[name]; !ok {
		return nil, false
	}
	return &sobek.ResolvedBinding{Module: b, BindingName: name}, false
}

func (b *builtin) Evaluate(rt *sobek.Runtime) *sobek.Promise {
	p, resolve, _ := rt.NewPromise()
	if err := resolve(b); err != nil {
		panic(err) // nobody waits for the promise
	}
	return p
}

// GetBindingValue makes it its own instance.
func (b *builtin) GetBindingValue(name string) sobek.Value { return b.exports[name] }
