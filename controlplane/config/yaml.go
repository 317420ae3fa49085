package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxBytes bounds a file: all settings take a few kilobytes.
const maxBytes = 1 << 20

// parse adds the settings of a file to words.
func parse(data []byte, name string, words map[string]word) Problems {
	if len(data) > maxBytes {
		return Problems{{Source: name, Text: fmt.Sprintf("must be at most %d bytes", maxBytes)}}
	}
	p := &parser{name: name, words: words, seen: map[string]int{}}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var node, more yaml.Node
	switch err := decoder.Decode(&node); {
	case errors.Is(err, io.EOF):
		return nil // it says nothing
	case err != nil:
		return Problems{{Source: name, Text: "is no YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}}
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return Problems{{Source: name, Text: "must hold one document"}}
	}
	if root := node.Content[0]; root.Tag != "!!null" {
		p.mapping(root, "")
	}
	return p.problems
}

type parser struct {
	name     string
	words    map[string]word
	seen     map[string]int // line
	problems Problems
}

func (p *parser) source(n *yaml.Node) string { return fmt.Sprintf("%s:%d", p.name, n.Line) }

func (p *parser) problem(n *yaml.Node, key, format string, args ...any) {
	p.problems = append(p.problems, Problem{key, p.source(n), fmt.Sprintf(format, args...)})
}

// mapping reads the keys under a prefix, which is empty or ends with a dot.
func (p *parser) mapping(n *yaml.Node, prefix string) {
	if n.Kind != yaml.MappingNode {
		p.problem(n, strings.TrimSuffix(prefix, "."), "must be a mapping of settings to values")
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		name := prefix + k.Value
		if k.Kind != yaml.ScalarNode {
			p.problem(k, strings.TrimSuffix(prefix, "."), "a setting's name must be plain text")
			continue
		}
		setting, group := find(name)
		switch {
		case setting != nil:
			p.setting(k, v, setting)
		case group:
			p.mapping(v, name+".")
		default:
			p.unknown(k, name)
		}
	}
}

// find returns the setting of a name, or whether names of settings begin with it.
func find(name string) (setting *key, group bool) {
	for i := range keys {
		if keys[i].Name == name {
			return &keys[i], false
		}
		group = group || strings.HasPrefix(keys[i].Name, name+".")
	}
	return nil, group
}

func (p *parser) setting(k, v *yaml.Node, setting *key) {
	name := setting.Name
	if line := p.seen[name]; line > 0 {
		p.problem(k, name, "is there already, in line %d", line)
		return
	}
	p.seen[name] = k.Line
	text, err := p.value(v, setting.kind)
	if err != nil {
		p.problem(v, name, "%v", err)
		return
	}
	p.words[name] = word{text, p.source(v)}
}

func (p *parser) value(v *yaml.Node, of kind) (string, error) {
	switch {
	case v.Kind == yaml.AliasNode || v.Anchor != "":
		return "", errors.New("must be written out: there are no anchors and aliases here")
	case v.Kind == yaml.ScalarNode && (v.Tag == "!!null" || v.Value == ""):
		return "", errors.New("has no value; leave it out for the default")
	case v.Kind == yaml.ScalarNode:
		return v.Value, nil
	case v.Kind == yaml.SequenceNode && of == list && len(v.Content) > 0:
		var parts []string
		for _, item := range v.Content {
			text, err := p.value(item, text)
			if err != nil {
				return "", err
			}
			parts = append(parts, text)
		}
		return strings.Join(parts, ","), nil
	case of == list:
		return "", errors.New("must be a list of values")
	}
	return "", errors.New("must be one value")
}

func (p *parser) unknown(k *yaml.Node, name string) {
	const maxShown = 100
	if r := []rune(name); len(r) > maxShown {
		name = string(r[:maxShown]) + "…"
	}
	text := fmt.Sprintf("%q is no setting", name)
	if near := nearest(name); near != "" {
		text += fmt.Sprintf("; did you mean %s?", near)
	}
	p.problem(k, "", "%s", text)
}

// nearest is the setting whose name resembles a word; its group may be missing.
func nearest(name string) (best string) {
	const maxDistance = 3
	least := maxDistance + 1
	for _, k := range keys {
		last := k.Name[strings.LastIndexByte(k.Name, '.')+1:]
		d := distance(name, k.Name)
		if len(last) > 3 { // "ca" would resemble everything
			d = min(d, distance(name, last))
		}
		if d < least && 2*d < len(name)+1 {
			best, least = k.Name, d
		}
	}
	return best
}

// distance is how many letters must be added, removed or replaced.
func distance(a, b string) int {
	a = strings.ToLower(strings.ReplaceAll(a, "-", "_"))
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// WriteYAML writes the settings as a file, with the source of each as a comment. Where a
// secret would be, there is none.
func (l *Loaded) WriteYAML(w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	groups := map[string]*yaml.Node{"": root}
	for _, k := range keys {
		shown, source := k.show(&l.Server), l.sources[k.Name]
		if k.Name == "advertise" && shown == "" && checkAdvertise(l.Listen) == nil {
			shown, source = l.Listen, byDefault+": where it listens"
		}
		if shown == "" {
			continue
		}
		prefix, last, grouped := strings.Cut(k.Name, ".")
		if !grouped {
			prefix, last = "", k.Name
		}
		if groups[prefix] == nil {
			groups[prefix] = &yaml.Node{Kind: yaml.MappingNode}
			root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: prefix}, groups[prefix])
		}
		groups[prefix].Content = append(groups[prefix].Content, &yaml.Node{Kind: yaml.ScalarNode, Value: last}, k.node(shown, source))
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return err
	}
	return encoder.Close()
}

func (k *key) node(shown, source string) *yaml.Node {
	if k.kind != list {
		return k.scalar(shown, source)
	}
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for one := range strings.SplitSeq(shown, ",") {
		n.Content = append(n.Content, k.scalar(one, source))
	}
	return n
}

func (k *key) scalar(shown, source string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(shown)
	if k.kind == number || k.kind == boolean {
		n.Tag = ""
	}
	n.LineComment = strings.Map(printable, source)
	return n
}

// printable keeps the name of a file from ending the comment that it stands in.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
		return ' '
	}
	return r
}
