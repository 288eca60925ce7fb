// Package crd holds the CustomResourceDefinitions that are installed, for code that applies them without a server.
package crd

import "embed"

// Bases are the generated definitions, one file each, under bases/.
//
//go:embed bases/*.yaml
var Bases embed.FS
