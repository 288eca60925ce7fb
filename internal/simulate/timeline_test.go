package simulate

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/internal/simulate/input"
)

func TestTimeline(t *testing.T) {
	named := func(name string, uid types.UID) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, UID: uid} }
	in := &input.Input{Objects: []input.Object{
		{Object: &corev1.Node{ObjectMeta: named("node", "")}, DeleteAt: ptr.To(time.Second)},
		{Object: &batchv1.Job{ObjectMeta: named("dumped", "1")}},
		{Object: &batchv1.Job{ObjectMeta: named("written", "")}},
		{Object: &batchv1.Job{ObjectMeta: named("next", "")}, At: time.Second},
		{Object: &kueue.Workload{ObjectMeta: named("job-dumped", "2")}},
		{Object: &kueue.Workload{ObjectMeta: named("bare", "")}},
		{Object: &corev1.Pod{ObjectMeta: named("dumped-0", "3")}},
		{Object: &corev1.Pod{ObjectMeta: named("foreign", "")}},
	}}
	var got []string
	for _, c := range timeline(in) {
		s := fmt.Sprintf("%s %s", c.at, c.object.GetName())
		if c.gone {
			s += " goes"
		}
		got = append(got, s)
	}
	want := []string{"0s node", "0s job-dumped", "0s dumped-0", "0s dumped", "0s written", "0s bare", "0s foreign", "1s node goes", "1s next"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
