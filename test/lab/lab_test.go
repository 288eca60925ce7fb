package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	startTimeout = 3 * time.Minute
	patience     = 30 * time.Second
	namespace    = "team-a"
)

// shared is the lab that tests use which leave it as they found it. TestMain stops it.
var shared struct {
	once sync.Once
	lab  *Lab
	err  error
}

func sharedLab(t *testing.T) *Lab {
	t.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		if shared.lab, shared.err = Start(ctx, Options{Out: os.Stderr}); shared.err == nil {
			shared.err = shared.lab.Apply(ctx, "testdata/simple")
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.lab
}

func eventually(t *testing.T, within time.Duration, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s: %v", within, what, err)
		}
		<-tick.C
	}
}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// submit creates a suspended Job of one pod in the sample queue and returns it as created.
func submit(t *testing.T, client kubernetes.Interface, annotations map[string]string) *batchv1.Job {
	t.Helper()
	suspend, retries := true, int32(0)
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "job-", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "lq"},
		},
		Spec: batchv1.JobSpec{
			Suspend:      &suspend,
			BackoffLimit: &retries,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers: []corev1.Container{{
						Name: "main", Image: "none",
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
							corev1.ResourceCPU: resource.MustParse("1"),
						}},
					}},
				},
			},
		},
	}
	created, err := client.BatchV1().Jobs(namespace).Create(t.Context(), job, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		policy := metav1.DeletePropagationForeground
		err := client.BatchV1().Jobs(namespace).Delete(context.Background(), created.Name,
			metav1.DeleteOptions{PropagationPolicy: &policy})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return created
}

// podOf returns the pod of a Job, or an error while there is none.
func podOf(t *testing.T, client kubernetes.Interface, job *batchv1.Job) (*corev1.Pod, error) {
	t.Helper()
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) != 1 {
		return nil, fmt.Errorf("%d pods", len(pods.Items))
	}
	return &pods.Items[0], nil
}

func waitPhase(t *testing.T, client kubernetes.Interface, job *batchv1.Job, want corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, patience, fmt.Sprintf("the pod of %s is %s", job.Name, want), func() (err error) {
		if pod, err = podOf(t, client, job); err == nil && pod.Status.Phase != want {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	})
	return pod
}

func TestJobRunsThroughKueue(t *testing.T) {
	l := sharedLab(t)
	client := clientFor(t, l.Admin())
	start := time.Now()
	job := submit(t, client, map[string]string{RunSecondsAnnotation: "1"})
	eventually(t, patience, "the Job is admitted", func() error {
		current, err := client.BatchV1().Jobs(namespace).Get(t.Context(), job.Name, metav1.GetOptions{})
		if err == nil && *current.Spec.Suspend {
			err = errors.New("suspended")
		}
		return err
	})
	t.Logf("admitted %s after it was submitted", time.Since(start).Round(time.Millisecond))

	pod := waitPhase(t, client, job, corev1.PodRunning)
	if pod.Spec.NodeName != "worker" {
		t.Errorf("the pod is on %q, want worker", pod.Spec.NodeName)
	}
	pod = waitPhase(t, client, job, corev1.PodSucceeded)
	if ran := time.Since(pod.CreationTimestamp.Time); ran < time.Second {
		t.Errorf("the pod ended %s after it was created, want at least a second", ran)
	}
	eventually(t, patience, "the Job is complete", func() error {
		current, err := client.BatchV1().Jobs(namespace).Get(t.Context(), job.Name, metav1.GetOptions{})
		if err == nil && current.Status.Succeeded != 1 {
			err = fmt.Errorf("status %+v", current.Status)
		}
		return err
	})

	// The garbage collector knows Kueue's kinds from the start: it would find them only after half a minute otherwise.
	policy := metav1.DeletePropagationBackground
	err := client.BatchV1().Jobs(namespace).Delete(t.Context(), job.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if err != nil {
		t.Fatal(err)
	}
	workloads := dynamic.NewForConfigOrDie(l.Admin()).Resource(
		schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"}).Namespace(namespace)
	eventually(t, 10*time.Second, "the Job's Workload is gone", func() error {
		list, err := workloads.List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d Workloads", len(list.Items))
		}
		return err
	})
}

func TestPodsFollowTheirAnnotations(t *testing.T) {
	client := clientFor(t, sharedLab(t).Admin())
	deletePod := func(t *testing.T, pod *corev1.Pod) (gone time.Duration) {
		t.Helper()
		start := time.Now()
		err := client.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, "the pod is gone", func() error {
			_, err := client.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
			if err == nil {
				return errors.New("still there")
			}
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		return time.Since(start)
	}
	t.Run("exit fail ends a pod as failed", func(t *testing.T) {
		t.Parallel()
		job := submit(t, client, map[string]string{RunSecondsAnnotation: "1", ExitAnnotation: "fail"})
		pod := waitPhase(t, client, job, corev1.PodFailed)
		if code := pod.Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
	})
	t.Run("a pod without annotations goes at once when deleted", func(t *testing.T) {
		t.Parallel()
		pod := waitPhase(t, client, submit(t, client, nil), corev1.PodRunning)
		if took := deletePod(t, pod); took > 2*time.Second {
			t.Errorf("the pod was gone after %s", took)
		}
	})
	t.Run("a pod with grace keeps terminating that long", func(t *testing.T) {
		t.Parallel()
		pod := waitPhase(t, client, submit(t, client, map[string]string{GraceSecondsAnnotation: "2"}), corev1.PodRunning)
		if took := deletePod(t, pod); took < 2*time.Second || took > 6*time.Second {
			t.Errorf("the pod was gone after %s, want 2 to 3 s", took)
		}
	})
	t.Run("a running pod ends when it is told to", func(t *testing.T) {
		t.Parallel()
		job := submit(t, client, nil)
		pod := waitPhase(t, client, job, corev1.PodRunning)
		pod.Annotations[RunSecondsAnnotation] = "0"
		if _, err := client.CoreV1().Pods(namespace).Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		waitPhase(t, client, job, corev1.PodSucceeded)
	})
}

func TestNodesKeepTheirCapacityAndCanBeLost(t *testing.T) {
	client := clientFor(t, sharedLab(t).Admin())
	ready := func(want corev1.ConditionStatus) *corev1.Node {
		t.Helper()
		var node *corev1.Node
		eventually(t, patience, "the node's readiness is "+string(want), func() (err error) {
			if node, err = client.CoreV1().Nodes().Get(t.Context(), "worker", metav1.GetOptions{}); err != nil {
				return err
			}
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == want {
					return nil
				}
			}
			return fmt.Errorf("conditions %v", node.Status.Conditions)
		})
		return node
	}
	node := ready(corev1.ConditionTrue)
	for name, want := range map[corev1.ResourceName]string{"cpu": "7", "memory": "30Gi", "gpus": "8", "pods": "30"} {
		if got := node.Status.Allocatable[name]; got.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("allocatable %s is %s, want %s", name, &got, want)
		}
	}
	annotate(t, client, LostAnnotation, "true")
	ready(corev1.ConditionFalse)
	annotate(t, client, LostAnnotation, "")
	ready(corev1.ConditionTrue)
}

func annotate(t *testing.T, client kubernetes.Interface, key, value string) {
	t.Helper()
	eventually(t, patience, "the node is annotated", func() error {
		node, err := client.CoreV1().Nodes().Get(t.Context(), "worker", metav1.GetOptions{})
		if err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
		_, err = client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		return err
	})
}

func TestIdentities(t *testing.T) {
	l := sharedLab(t)
	jane, err := l.User("jane", "team-a")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := l.WriteKubeconfig(file, jane); err != nil {
		t.Fatal(err)
	}
	read, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]*rest.Config{"a user": read, "the manager's identity": l.Manager()} {
		_, err := clientFor(t, config).CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s without any RBAC lists secrets: %v", name, err)
		}
	}
}

func TestAuditTellsWhoWrote(t *testing.T) {
	l := sharedLab(t)
	start := time.Now()
	job := submit(t, clientFor(t, l.Admin()), map[string]string{RunSecondsAnnotation: "0"})
	eventually(t, patience, "the audit log has the Job's creation and Kueue's release", func() error {
		events, err := l.AuditSince(start)
		if err != nil {
			return err
		}
		var writers []string
		for _, event := range events {
			if event.ObjectRef != nil && event.ObjectRef.Resource == "jobs" && event.ObjectRef.Namespace == namespace {
				writers = append(writers, event.User.Username+" "+event.Verb)
			}
			if event.Verb == "get" || event.StageTimestamp.Time.Before(start) {
				return fmt.Errorf("unexpected event %+v", event)
			}
		}
		for _, want := range []string{userAdmin + " create", "system:serviceaccount:kueue-system:kueue-controller-manager patch"} {
			if !slices.Contains(writers, want) {
				return fmt.Errorf("no %q for %s among %q", want, job.Name, writers)
			}
		}
		return nil
	})
}

func TestComponentsStopAndStart(t *testing.T) {
	l := sharedLab(t)
	ctx := t.Context()
	client := clientFor(t, l.Admin())
	for _, name := range []string{Kueue, Scheduler} {
		before := l.PIDs()[name]
		if err := l.StopComponent(ctx, name); err != nil {
			t.Fatal(err)
		}
		if pid, running := l.PIDs()[name]; running || runs(before) {
			t.Errorf("%s still runs as %d", name, pid)
		}
	}
	for _, name := range []string{Scheduler, Kueue} {
		if err := l.StartComponent(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	waitPhase(t, client, submit(t, client, map[string]string{RunSecondsAnnotation: "0"}), corev1.PodSucceeded)
}

func TestTwoLabsSideBySide(t *testing.T) {
	first := sharedLab(t)
	state := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	second, err := Start(ctx, Options{StateDir: state, Out: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(ctx, Options{StateDir: state}); !errors.Is(err, ErrAlreadyUp) {
		t.Errorf("a third lab in the second one's folder: %v, want %v", err, ErrAlreadyUp)
	}
	if _, err := clientFor(t, second.Admin()).CoreV1().Nodes().Get(ctx, "worker", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the second lab knows the first one's node: %v", err)
	}
	pids := second.PIDs()
	if err := second.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	for name, pid := range pids {
		if runs(pid) {
			t.Errorf("%s (process %d) still runs", name, pid)
		}
	}
	if _, err := clientFor(t, first.Admin()).CoreV1().Nodes().Get(ctx, "worker", metav1.GetOptions{}); err != nil {
		t.Errorf("the first lab: %v", err)
	}
}
