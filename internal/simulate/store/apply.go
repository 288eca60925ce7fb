package store

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type fieldSet struct{}

func (c *storeClient) applyPatch(_ context.Context, _ client.Object, _ []byte, _ patchOptions) error {
	return apierrors.NewBadRequest("apply is not supported yet")
}

func (c *storeClient) apply(_ context.Context, _ runtime.ApplyConfiguration, _ patchOptions) error {
	return apierrors.NewBadRequest("apply is not supported yet")
}
