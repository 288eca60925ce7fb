package cli

import (
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// printValue prints v as indented JSON, or as YAML.
func printValue(out io.Writer, v any, format string) error {
	data, err := report.JSON(v)
	if err == nil && format == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", format, err)
	}
	_, err = out.Write(data)
	return err
}
