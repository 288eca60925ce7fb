package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"

	"sigs.k8s.io/yaml"
)

// maxEscape is the last character that one \u escape holds; no terminal acts on those beyond.
const maxEscape = 0xffff

// printValue prints v as indented JSON, or as YAML.
func printValue(out io.Writer, v any, format string) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("print as %s: %w", format, err)
	}
	data := escapeControls(b.Bytes())
	if format == "yaml" {
		var err error
		if data, err = yaml.JSONToYAML(data); err != nil {
			return fmt.Errorf("print as %s: %w", format, err)
		}
	}
	_, err := out.Write(data)
	return err
}

// escapeControls escapes what encoding/json leaves in strings and a terminal acts on: DEL, the C1 controls and what
// changes the direction of text. Outside of strings JSON has none of them.
func escapeControls(data []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(data) {
		if r >= unicode.MaxASCII && r <= maxEscape && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}
