package inspect

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/plimsoll-dev/plimsoll/internal/observe"
	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// Cold returns the export of a book that was filled from the API server just now. The scheme knows what the book takes.
func Cold(ctx context.Context, c client.Reader, scheme *runtime.Scheme, now func() time.Time) (*ledger.Export, error) {
	book, err := observe.Cold(ctx, c, scheme)
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
