package input

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll/internal/kueueconfig"
)

func isConfiguration(apiVersion string) bool {
	return strings.HasPrefix(apiVersion, "config.kueue.x-k8s.io/")
}

// readConfiguration reads Kueue's own configuration as Kueue does.
func (r *reader) readConfiguration(d document, fields map[string]any, kind string) {
	wrong := func(text string) {
		r.fault(fault{file: d.file, line: d.line(), object: oneLine(kind), text: text})
	}
	here := fmt.Sprintf("%s:%d", d.file, d.line())
	if r.kueueSeen != "" {
		wrong("the input has a Configuration already, at " + r.kueueSeen)
		return
	}
	text, err := json.Marshal(fields)
	if err != nil {
		wrong("cannot be written as JSON: " + err.Error())
		return
	}
	c, err := kueueconfig.Decode(text)
	if err != nil {
		wrong("is not a Configuration of Kueue 0.17: " + err.Error())
		return
	}
	if err := kueueconfig.CheckGates(c.FeatureGates); err != nil {
		wrong(err.Error())
		return
	}
	r.kueue, r.kueueSeen = c, here
}
