package webhook

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/internal/policies"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// workloadAnnotations are what the manager keeps on a Workload; nobody else may write them.
var workloadAnnotations = []string{
	v1alpha1.ChargeAnnotation, v1alpha1.AllowedFlavorsAnnotation, v1alpha1.UserAffinityAnnotation,
	v1alpha1.SteeringAnnotation, v1alpha1.RejectedAnnotation,
}

// workloadMutator closes and charges Workloads of managed queues, and restores both where Kueue or somebody else took
// them out. It refuses nothing: where it fails, the manager mends the Workload before it decides.
type workloadMutator struct {
	decoder  admission.Decoder
	policyOf PolicyOf
	resolver *policies.Resolver
	manager  string
}

// Handle answers one request.
func (m *workloadMutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.SubResource != "" || req.UserInfo.Username == m.manager {
		return admission.Allowed("")
	}
	logger := log.FromContext(ctx)
	response, err := m.answer(ctx, req)
	if err != nil {
		logger.Error(err, "Workload was let through as it is", "workload", klog.KRef(req.Namespace, req.Name))
		return admission.Allowed("")
	}
	return response
}

func (m *workloadMutator) answer(ctx context.Context, req admission.Request) (admission.Response, error) {
	wl := &kueue.Workload{}
	var old *kueue.Workload
	switch req.Operation {
	case admissionv1.Create:
	case admissionv1.Update:
		old = &kueue.Workload{}
		if err := m.decoder.DecodeRaw(req.OldObject, old); err != nil {
			return admission.Response{}, fmt.Errorf("decode old workload: %w", err)
		}
	default:
		return admission.Allowed(""), nil
	}
	if err := m.decoder.DecodeRaw(req.Object, wl); err != nil {
		return admission.Response{}, fmt.Errorf("decode workload: %w", err)
	}
	before := wl.DeepCopy()
	if err := m.mutate(ctx, req.Namespace, wl, old); err != nil {
		return admission.Response{}, err
	}
	return patched(before, wl)
}

// mutate changes wl as it is stored instead of old, which is nil for a new one.
func (m *workloadMutator) mutate(ctx context.Context, namespace string, wl, old *kueue.Workload) error {
	stored := wl
	if old != nil {
		stored = old
	}
	// MultiKueue deletes copies whose spec differs from its own.
	if _, copied := stored.Labels[kueue.MultiKueueOriginLabel]; copied || stored.DeletionTimestamp != nil {
		return nil
	}
	if old != nil && meta.IsStatusConditionTrue(old.Status.Conditions, kueue.WorkloadFinished) {
		return nil
	}
	managed, err := m.policyOf(ctx, namespace, string(wl.Spec.QueueName))
	if err != nil {
		return fmt.Errorf("find policy of queue: %w", err)
	}
	if !managed.Steerable() {
		return nil
	}
	if old == nil {
		return m.closed(ctx, namespace, managed.Policy, wl)
	}
	trustOld(wl, old)
	if meta.IsStatusConditionTrue(old.Status.Conditions, kueue.WorkloadQuotaReserved) {
		return nil // the podsets are immutable
	}
	if _, steered := old.Annotations[v1alpha1.AllowedFlavorsAnnotation]; !steered || old.Spec.QueueName != wl.Spec.QueueName {
		return m.closed(ctx, namespace, managed.Policy, wl)
	}
	return m.restored(ctx, managed.Policy, wl)
}

// trustOld gives wl the annotations that old has: what others than the manager wrote there counts for nothing.
func trustOld(wl, old *kueue.Workload) {
	for _, name := range workloadAnnotations {
		value, ok := old.Annotations[name]
		if !ok {
			delete(wl.Annotations, name)
			continue
		}
		if wl.Annotations == nil {
			wl.Annotations = map[string]string{}
		}
		wl.Annotations[name] = value
	}
}

// closed writes the empty set, and the charge of each podset for which it follows from the claims alone. Annotations
// that the object brings are used for one thing: a request that comes a second time, with what the first wrote, gives
// back the user's own affinity, which whoever forges them could as well have written openly.
func (m *workloadMutator) closed(ctx context.Context, namespace string, p *flavors.Policy, wl *kueue.Workload) error {
	p.Leave(wl)
	for _, name := range workloadAnnotations {
		delete(wl.Annotations, name)
	}
	asks := false
	for i := range wl.Spec.PodSets {
		spec := &wl.Spec.PodSets[i].Template.Spec
		delete(spec.Overhead, corev1.ResourceName(p.Spec.QuotaResource))
		asks = asks || p.AsksDevices(spec)
	}
	if !asks {
		return nil // gated only: it is decided where Kueue puts it
	}
	if err := p.Steer(wl, m.plan(ctx, namespace, p, wl)); err != nil {
		return fmt.Errorf("close workload: %w", err)
	}
	return nil
}

// plan returns the empty set, with the charges that are known already. What cannot be read now, or is not there yet,
// is charged when the Workload is opened.
func (m *workloadMutator) plan(ctx context.Context, namespace string, p *flavors.Policy, wl *kueue.Workload) flavors.Plan {
	plan := flavors.Plan{Charge: map[string]int64{}, Overhead: map[string]corev1.ResourceList{}}
	logger := log.FromContext(ctx)
	for i := range wl.Spec.PodSets {
		ps := &wl.Spec.PodSets[i]
		name := string(ps.Name)
		if !flavors.HasClaims(&ps.Template.Spec) {
			continue
		}
		shape, refusal, err := m.resolver.Shape(ctx, namespace, &ps.Template.Spec)
		if err != nil {
			logger.Error(err, "Claims could not be read, the charge is left to the manager", "podSet", name)
			continue
		}
		charge, uniform := p.UniformCharge(shape)
		if refusal != nil || !uniform {
			continue
		}
		fixed, err := m.resolver.RequestOverhead(ctx, ps)
		if err != nil {
			logger.Error(err, "RuntimeClass could not be read, the charge is left to the manager", "podSet", name)
			continue
		}
		plan.Charge[name] = charge
		if fixed != nil {
			plan.Overhead[name] = fixed
		}
	}
	return plan
}

// restored writes again what the annotations name, where the spec lost it. The annotations are those of the stored
// object.
func (m *workloadMutator) restored(ctx context.Context, p *flavors.Policy, wl *kueue.Workload) error {
	if p.Steered(wl) {
		return nil
	}
	plan := flavors.PlanOf(wl)
	var err error
	if plan.Overhead, err = m.resolver.Overheads(ctx, wl); err != nil {
		// Open, Kueue would reserve too little: the manager opens it with all of it.
		log.FromContext(ctx).Error(err, "RuntimeClass could not be read, the workload was closed")
		plan.Allowed, plan.AllowedFor = nil, nil
	}
	if err := p.Steer(wl, plan); err == nil {
		return nil
	}
	plan.Allowed, plan.AllowedFor = nil, nil // too many terms by now; the empty set is one
	if err := p.Steer(wl, plan); err != nil {
		return fmt.Errorf("restore workload: %w", err)
	}
	return nil
}
