package inspect

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Cold returns the export of a book that is filled from the API server now.
func Cold(ctx context.Context, from *observe.Cold, now func() time.Time) (*ledger.Export, error) {
	book, err := from.Book(ctx)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := book.Snapshot().Export(&out, ledger.Header{Time: now().UTC(), Source: ledger.SourceAPI}); err != nil {
		return nil, err
	}
	e, err := ledger.ReadExport(&out)
	if err != nil {
		return nil, fmt.Errorf("read what was computed: %w", err)
	}
	return e, nil
}
