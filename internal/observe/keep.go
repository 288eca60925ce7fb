package observe

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/json"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// keepingSerializer reads JSON as a client does, and keeps what Kubernetes 1.37 says in fields that the types lack.
func keepingSerializer() runtime.NegotiatedSerializer {
	codecs := serializer.NewCodecFactory(clientgoscheme.Scheme).WithoutConversion()
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	return keepers{codecs, []runtime.SerializerInfo{info}}
}

type keepers struct {
	runtime.NegotiatedSerializer
	media []runtime.SerializerInfo
}

// SupportedMediaTypes returns JSON alone.
func (k keepers) SupportedMediaTypes() []runtime.SerializerInfo { return k.media }

// DecoderToVersion returns a decoder that keeps what the types lack.
func (k keepers) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return keeper{k.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

type keeper struct{ runtime.Decoder }

// Decode reads one object, or a list.
func (k keeper) Decode(text []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, gvk, err := k.Decoder.Decode(text, defaults, into)
	if err == nil {
		err = keep(text, o)
	}
	return o, gvk, err
}

// keep adds to an object what the JSON that it was read from says beyond its type.
func keep(text []byte, o runtime.Object) error {
	switch x := o.(type) {
	case *resourcev1.ResourceSlice:
		f, err := later[LaterFields](text, sliceFields...)
		if err != nil {
			return err
		}
		return f.Keep(x)
	case *resourcev1.ResourceSliceList:
		list, err := later[listOf[LaterFields]](text, sliceFields...)
		if err != nil {
			return err
		}
		for i := range x.Items {
			if err := list.at(i).Keep(&x.Items[i]); err != nil {
				return err
			}
		}
	case *corev1.Pod:
		f, err := later[laterPod](text, podField)
		if err != nil {
			return err
		}
		f.keep(x)
	case *corev1.PodList:
		list, err := later[listOf[laterPod]](text, podField)
		if err != nil {
			return err
		}
		for i := range x.Items {
			list.at(i).keep(&x.Items[i])
		}
	}
	return nil
}

// The fields without which an object says nothing that its type lacks.
const podField = `"nodeAllocatableResourceClaimStatuses"`

var sliceFields = []string{`"nodeAllocatableResources"`, `"compatibilityGroups"`}

// later reads what a type lacks of an object that has any of certain fields; of others nothing.
func later[T any](text []byte, fields ...string) (*T, error) {
	out := new(T)
	if !slices.ContainsFunc(fields, func(field string) bool { return bytes.Contains(text, []byte(field)) }) {
		return out, nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("read %s: %w", strings.Join(fields, ", "), err)
	}
	return out, nil
}

type listOf[T any] struct {
	Items []T `json:"items"`
}

func (l *listOf[T]) at(i int) *T {
	if i < len(l.Items) {
		return &l.Items[i]
	}
	return new(T)
}

// laterPod is what a pod of Kubernetes 1.37 says that its claims take of its node.
type laterPod struct {
	Status struct {
		Claims []struct {
			Containers []string `json:"containers"`
			Mapping    []struct {
				Name     corev1.ResourceName `json:"name"`
				Quantity *resource.Quantity  `json:"quantity"`
			} `json:"mapping"`
			Overhead []struct {
				Name         corev1.ResourceName `json:"name"`
				PerPod       *resource.Quantity  `json:"perPod"`
				PerContainer *resource.Quantity  `json:"perContainer"`
			} `json:"overhead"`
		} `json:"nodeAllocatableResourceClaimStatuses"`
	} `json:"status"`
}

// keep writes it into the pod in the shape of 1.36, which says no more than the sums that kube-scheduler of either counts.
func (f *laterPod) keep(p *corev1.Pod) {
	for i := range p.Status.NodeAllocatableResourceClaimStatuses {
		s := &p.Status.NodeAllocatableResourceClaimStatuses[i]
		if len(s.Resources) > 0 || i >= len(f.Status.Claims) {
			continue
		}
		sums := corev1.ResourceList{}
		add := func(name corev1.ResourceName, q *resource.Quantity, times int) {
			if q != nil {
				n, sum := q.DeepCopy(), sums[name]
				n.Mul(int64(times))
				sum.Add(n)
				sums[name] = sum
			}
		}
		c := &f.Status.Claims[i]
		for _, m := range c.Mapping {
			add(m.Name, m.Quantity, 1)
		}
		for _, o := range c.Overhead {
			add(o.Name, o.PerPod, 1)
			add(o.Name, o.PerContainer, len(c.Containers))
		}
		if len(sums) > 0 {
			s.Resources = sums
		}
	}
}

// unread says whether a pod's status names a claim without what it takes: the types that it was read into lack that.
func unread(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.NodeAllocatableResourceClaimStatuses, func(s corev1.NodeAllocatableResourceClaimStatus) bool {
		return len(s.Resources) == 0
	})
}
