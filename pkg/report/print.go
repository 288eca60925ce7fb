package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxEscape is the last character that one \u escape holds; no terminal acts on those beyond.
const maxEscape = 0xffff

// JSON returns v as indented JSON with a line break at its end. No string in it can make a terminal act.
func JSON(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return escapeControls(b.Bytes()), nil
}

// escapeControls escapes what encoding/json leaves in strings and a terminal acts on: DEL, the C1 controls and what
// changes the direction of text. Outside of strings JSON has none of them.
func escapeControls(data []byte) []byte {
	var b bytes.Buffer
	b.Grow(len(data))
	for _, r := range string(data) {
		if r >= unicode.MaxASCII && r <= maxEscape && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

// Printable writes every character of s that a terminal would act on, and every invalid byte, as an escape.
func Printable(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += n
	}
	return b.String()
}
