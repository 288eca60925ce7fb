package observe

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/plimsoll-dev/plimsoll/pkg/ledger"
)

// coldPage is how many objects are asked for at once.
const coldPage = 500

// Cold fills books from what an API server has just then, by the same observations as an Observer.
type Cold struct {
	// Client asks the server each time; its scheme knows all kinds that the book takes.
	Client client.Client
	// Wire reads what the types lack; nil where there is nothing of that.
	Wire *Wire
	// Served says which DeviceTaintRules there are; nil for none.
	Served ServedResources
}

// NewCold returns a Cold with the rights of whoever the configuration says.
func NewCold(cfg *rest.Config, scheme *runtime.Scheme) (*Cold, error) {
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	served, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make discovery client: %w", err)
	}
	wire, err := NewWire(cfg)
	return &Cold{Client: c, Wire: wire, Served: served}, err
}

// Book returns a book that was filled now. The kinds are listed one after the other, so what changes meanwhile may be seen
// half. The error is one of listing.
func (c *Cold) Book(ctx context.Context) (*ledger.Book, error) {
	book := ledger.New()
	for _, kind := range kinds() {
		gvk, err := apiutil.GVKForObject(kind, c.Client.Scheme())
		if err != nil {
			return nil, fmt.Errorf("list %T: %w", kind, err)
		}
		gvk.Kind += "List"
		err = c.list(ctx, book, kind, func() (client.ObjectList, error) {
			made, err := c.Client.Scheme().New(gvk)
			if err != nil {
				return nil, err
			}
			list, ok := made.(client.ObjectList)
			if !ok {
				return nil, fmt.Errorf("%s is no list", gvk)
			}
			return list, nil
		})
		if err != nil {
			return nil, fmt.Errorf("list %T: %w", kind, err)
		}
	}
	return book, c.rules(ctx, book)
}

// rules gives a book the DeviceTaintRules, in the version in which they count.
func (c *Cold) rules(ctx context.Context, book *ledger.Book) error {
	if c.Served == nil {
		return nil
	}
	version, err := (&TaintRules{served: c.Served}).version()
	if err != nil || version == "" {
		return err
	}
	kind := taintRuleOf(version)
	err = c.list(ctx, book, kind, func() (client.ObjectList, error) {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(kind.GetAPIVersion())
		list.SetKind(kind.GetKind() + "List")
		return list, nil
	})
	if err != nil {
		return fmt.Errorf("list DeviceTaintRules %s: %w", version, err)
	}
	return nil
}

// list gives a book every object of a kind.
func (c *Cold) list(ctx context.Context, book *ledger.Book, kind client.Object, empty func() (client.ObjectList, error)) error {
	var from toolscache.ListerWatcher = &toolscache.ListWatch{ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		list, err := empty()
		if err != nil {
			return nil, err
		}
		return list, c.Client.List(ctx, list, client.Limit(o.Limit), client.Continue(o.Continue))
	}}
	if c.Wire != nil {
		from = c.Wire.ListWatch(from, kind)
	}
	lister := toolscache.ToListerWatcherWithContext(from)
	options := metav1.ListOptions{Limit: coldPage}
	for {
		list, err := lister.ListWithContext(ctx, options)
		if err != nil {
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
		of, err := meta.ListAccessor(list)
		if err != nil {
			return err
		}
		if options.Continue = of.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}
