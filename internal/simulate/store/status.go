package store

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// subresourceClient writes a subresource; there is only status.
type subresourceClient struct {
	client *storeClient
	name   string
}

// SubResource writes one part alone.
func (c *storeClient) SubResource(name string) client.SubResourceClient {
	return &subresourceClient{client: c, name: name}
}

// Get reads it with the whole.
func (c *subresourceClient) Get(_ context.Context, obj, _ client.Object, _ ...client.SubResourceGetOption) error {
	return c.unsupported(obj, "get")
}

// Create stores an object that is not there yet.
func (c *subresourceClient) Create(_ context.Context, obj, _ client.Object, _ ...client.SubResourceCreateOption) error {
	return c.unsupported(obj, "create")
}

func (c *subresourceClient) unsupported(obj client.Object, verb string) error {
	k, err := c.client.store.kindOf(obj)
	if err != nil {
		return err
	}
	return apierrors.NewMethodNotSupported(k.resource, verb+" "+c.name)
}

// Update replaces an object, or a part of it.
func (c *subresourceClient) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	o := client.SubResourceUpdateOptions{}
	o.ApplyOptions(opts)
	body := obj
	if o.SubResourceBody != nil {
		body = o.SubResourceBody
	}
	return c.client.update(ctx, obj, body, c.name, len(o.DryRun) > 0)
}

// Patch changes an object by a patch of any type.
func (c *subresourceClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	o := client.SubResourcePatchOptions{}
	o.ApplyOptions(opts)
	body := obj
	if o.SubResourceBody != nil {
		body = o.SubResourceBody
	}
	return c.client.patch(ctx, obj, body, patch, patchOptions{
		subresource: c.name, dryRun: len(o.DryRun) > 0, manager: o.FieldManager, force: ptr.Deref(o.Force, false),
	})
}

// Apply is server-side apply.
func (c *subresourceClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	o := client.SubResourceApplyOptions{}
	o.ApplyOpts(opts)
	if o.SubResourceBody != nil {
		obj = o.SubResourceBody
	}
	return c.client.apply(ctx, obj, patchOptions{
		subresource: c.name, dryRun: len(o.DryRun) > 0, manager: o.FieldManager, force: ptr.Deref(o.Force, false),
	})
}
