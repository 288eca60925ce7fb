package observe

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// coldPage is how many objects are asked for at once.
const coldPage = 500

// Cold returns a book that was filled with all that the API server has now, by the same observations as the manager's. The
// kinds are listed one after the other, so what changes meanwhile may be seen half. The scheme knows all kinds that the book
// takes. The error is one of listing.
func Cold(ctx context.Context, c client.Reader, scheme *runtime.Scheme) (*ledger.Book, error) {
	book := ledger.New()
	for _, kind := range kinds() {
		if err := listInto(ctx, book, c, scheme, kind); err != nil {
			return nil, fmt.Errorf("list %T: %w", kind, err)
		}
	}
	return book, nil
}

func listInto(ctx context.Context, book *ledger.Book, c client.Reader, scheme *runtime.Scheme, kind client.Object) error {
	gvk, err := apiutil.GVKForObject(kind, scheme)
	if err != nil {
		return err
	}
	gvk.Kind += "List"
	next := ""
	for {
		made, err := scheme.New(gvk)
		if err != nil {
			return err
		}
		list, ok := made.(client.ObjectList)
		if !ok {
			return fmt.Errorf("%s is no list", gvk)
		}
		if err := c.List(ctx, list, client.Limit(coldPage), client.Continue(next)); err != nil {
			return err
		}
		err = meta.EachListItem(list, func(o runtime.Object) error {
			if m, ok := o.(metav1.Object); ok {
				if observation, taken := Of(m, false); taken {
					book.Apply(observation)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}
