package store

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patchOptions are those of all kinds of patches.
type patchOptions struct {
	subresource string
	dryRun      bool
	manager     string
	force       bool
}

// patch changes an object by the patch that body gives, and gives obj what is stored then.
func (c *storeClient) patch(ctx context.Context, obj, body client.Object, patch client.Patch, o patchOptions) error {
	data, err := patch.Data(body)
	if err != nil {
		return err
	}
	if patch.Type() == types.ApplyPatchType {
		return c.applyPatch(ctx, obj, data, o)
	}
	w, err := c.write(obj, o.subresource, o.dryRun)
	if err != nil {
		return err
	}
	k := w.kind
	switch patch.Type() {
	case types.MergePatchType:
		w.next = func(old client.Object) (client.Object, error) { return k.mergePatch(old, data, o.subresource) }
	case types.JSONPatchType:
		operations, err := jsonpatch.DecodePatch(data)
		if err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("read JSON patch: %v", err))
		}
		w.next = func(old client.Object) (client.Object, error) {
			return k.patchText(old, func(text []byte) ([]byte, error) { return operations.Apply(text) })
		}
	case types.StrategicMergePatchType:
		w.next = func(old client.Object) (client.Object, error) {
			return k.patchText(old, func(text []byte) ([]byte, error) {
				return strategicpatch.StrategicMergePatch(text, data, reflect.New(k.typ).Interface())
			})
		}
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("patch type %q is not supported", patch.Type()))
	}
	return c.run(ctx, w, obj)
}

// patchText changes the JSON of an object.
func (k *kind) patchText(old client.Object, change func([]byte) ([]byte, error)) (client.Object, error) {
	text, err := json.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", k.gvk.Kind, err)
	}
	if text, err = change(text); err != nil {
		return nil, k.unprocessable(old, err)
	}
	next := reflect.New(k.typ).Interface().(client.Object)
	if err := utiljson.Unmarshal(text, next); err != nil {
		return nil, k.unprocessable(old, err)
	}
	return next, nil
}

// unprocessable is what an API server says of a patch that does not fit the object.
func (k *kind) unprocessable(obj client.Object, err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", k.resource, obj.GetName(), err.Error(), 0, false)
}
