// Package placements reads and writes Placements: the promise in spec, the record in status.
package placements

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// Store is the only writer of Placements. It is safe for concurrent use.
type Store struct {
	// Client reads from the informers' cache.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Epoch returns the leader's number of lease transitions.
	Epoch func(context.Context) (int64, error)
	// Written is called with what the API server answered to a write of spec.
	Written func(*v1alpha1.Placement)
	// Deciding is held by whoever promises what was decided on a snapshot of the ledger, from the snapshot until Written
	// was called: so no two decisions give away the same device.
	Deciding sync.Mutex
	// Offers holds what Workloads were offered, by uid, until it is promised or offered no more. Deciding guards it.
	Offers map[types.UID]Offer
}

// Get returns the Placement of a Workload as the cache has it; nil if there is none, or one of an earlier Workload of
// the same name. It is read-only: it may be shared with the cache.
func (s *Store) Get(ctx context.Context, wl *kueue.Workload) (*v1alpha1.Placement, error) {
	p := &v1alpha1.Placement{}
	err := s.Client.Get(ctx, client.ObjectKeyFromObject(wl), p, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get placement: %w", err)
	}
	if !ownedBy(p, wl.UID) {
		return nil, nil
	}
	return p, nil
}

func ownedBy(p *v1alpha1.Placement, uid types.UID) bool {
	ref := metav1.GetControllerOfNoCopy(p)
	return ref != nil && ref.UID == uid
}

// Ensure returns the Workload's Placement, making one that promises nothing where there is none.
func (s *Store) Ensure(ctx context.Context, wl *kueue.Workload) (*v1alpha1.Placement, error) {
	return s.Promise(ctx, wl, nil)
}

// Promise writes spec: the whole promise, or for nil nothing more than that a Placement exists. The API server refuses
// it where a newer leader has written.
func (s *Store) Promise(ctx context.Context, wl *kueue.Workload, spec *v1alpha1.PlacementSpec) (*v1alpha1.Placement, error) {
	p, err := s.Get(ctx, wl)
	if err != nil {
		return nil, err
	}
	if p != nil && spec == nil {
		return p, nil
	}
	epoch, err := s.Epoch(ctx)
	if err != nil {
		return nil, err
	}
	if p == nil {
		p, err = s.create(ctx, wl, spec, epoch)
		if !apierrors.IsAlreadyExists(err) {
			return p, err
		}
		// The cache is behind a write of our own, or an earlier Workload of the name has left a Placement that the
		// garbage collector has yet to take: then this is a conflict, and its deletion wakes the round.
		p = &v1alpha1.Placement{}
		if err := s.Live.Get(ctx, client.ObjectKeyFromObject(wl), p); err != nil {
			return nil, fmt.Errorf("get placement: %w", err)
		}
		if !ownedBy(p, wl.UID) {
			return nil, apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("placements").GroupResource(), wl.Name, errors.New("it belongs to an earlier Workload"))
		}
		if spec == nil {
			return p, nil
		}
	}
	p = p.DeepCopy()
	p.Spec = *spec
	p.Spec.Epoch = &epoch
	if err := s.Client.Update(ctx, p, client.FieldOwner(v1alpha1.FieldOwner)); err != nil {
		return nil, fmt.Errorf("update placement: %w", err)
	}
	s.Written(p)
	return p, nil
}

// Amend replaces the podsets of a promise and leaves its key as it is. base is the version that was read: where anything
// was written since, nothing is, and the error is a conflict.
func (s *Store) Amend(ctx context.Context, base *v1alpha1.Placement, podSets []v1alpha1.PlacementPodSet) (*v1alpha1.Placement, error) {
	epoch, err := s.Epoch(ctx)
	if err != nil {
		return nil, err
	}
	p := base.DeepCopy()
	p.Spec.PodSets, p.Spec.Epoch = podSets, &epoch
	if err := s.Client.Update(ctx, p, client.FieldOwner(v1alpha1.FieldOwner)); err != nil {
		return nil, fmt.Errorf("amend placement: %w", err)
	}
	s.Written(p)
	return p, nil
}

func (s *Store) create(ctx context.Context, wl *kueue.Workload, spec *v1alpha1.PlacementSpec, epoch int64) (*v1alpha1.Placement, error) {
	p := &v1alpha1.Placement{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: wl.Namespace, Name: wl.Name,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: kueue.GroupVersion.String(), Kind: "Workload", Name: wl.Name, UID: wl.UID, Controller: ptr.To(true),
			}},
		},
	}
	if spec != nil {
		p.Spec = *spec
	}
	p.Spec.Epoch = &epoch
	if err := s.Client.Create(ctx, p, client.FieldOwner(v1alpha1.FieldOwner)); err != nil {
		return nil, fmt.Errorf("create placement: %w", err)
	}
	s.Written(p)
	return p, nil
}

// Withdraw empties spec; the epoch stays, so that no older leader writes after it. It does nothing to a Placement that
// promises nothing.
func (s *Store) Withdraw(ctx context.Context, wl *kueue.Workload) error {
	p, err := s.Get(ctx, wl)
	if err != nil || p == nil || p.Spec.Key == nil {
		return err
	}
	_, err = s.Promise(ctx, wl, &v1alpha1.PlacementSpec{})
	return client.IgnoreNotFound(err)
}

// UpdateStatus applies change to the status of a Workload's Placement and writes it where that changed anything. It
// reads anew and tries again on a conflict. A Placement that does not exist is left so.
func (s *Store) UpdateStatus(ctx context.Context, wl types.NamespacedName, change func(*v1alpha1.PlacementStatus)) error {
	var from client.Reader = s.Client
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		p := &v1alpha1.Placement{}
		err := from.Get(ctx, wl, p)
		if apierrors.IsNotFound(err) && from != s.Live {
			err = s.Live.Get(ctx, wl, p)
		}
		from = s.Live
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		old := p.DeepCopy()
		change(&p.Status)
		if apiequality.Semantic.DeepEqual(old.Status, p.Status) {
			return nil
		}
		patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
		return client.IgnoreNotFound(s.Client.Status().Patch(ctx, p, patch, client.FieldOwner(v1alpha1.FieldOwner)))
	})
}
