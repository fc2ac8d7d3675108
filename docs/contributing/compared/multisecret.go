// The controller of examples/multi-secret with controller-runtime 0.25, for comparison. The types are left out.
package main

import (
	"context"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	finalizer = "multisecret.example.com/cleanup"
	ownerName = "multisecret.example.com/name"
	ownerNS   = "multisecret.example.com/namespace"
)

// MultiSecretReconciler keeps one Secret in every selected namespace.
type MultiSecretReconciler struct {
	client.Client
	Recorder record.EventRecorder
}

// SetupWithManager watches what the result depends on.
func (r *MultiSecretReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&MultiSecret{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(ownerOf)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.selecting)).
		Complete(r)
}

// An owner reference cannot cross namespaces, so that labels name the owner.
func ownerOf(_ context.Context, o client.Object) []reconcile.Request {
	l := o.GetLabels()
	if l[ownerName] == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: l[ownerNS], Name: l[ownerName]}}}
}

func (r *MultiSecretReconciler) selecting(ctx context.Context, ns client.Object) []reconcile.Request {
	var all MultiSecretList
	if err := r.List(ctx, &all); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for _, m := range all.Items {
		// A namespace that is no longer selected concerns it, too.
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&m)})
	}
	return requests
}

// Reconcile makes the Secrets what the MultiSecret says.
func (r *MultiSecretReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var m MultiSecret
	if err := r.Get(ctx, req.NamespacedName, &m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !m.DeletionTimestamp.IsZero() {
		return r.cleanUp(ctx, &m)
	}
	if controllerutil.AddFinalizer(&m, finalizer) {
		if err := r.Update(ctx, &m); err != nil {
			return ctrl.Result{}, err
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(&m.Spec.NamespaceSelector)
	if err != nil {
		r.Recorder.Event(&m, corev1.EventTypeWarning, "InvalidSelector", err.Error())
		if err := r.writeStatus(ctx, &m, 0, 0, "InvalidSelector", err.Error()); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, reconcile.TerminalError(err)
	}
	var namespaces corev1.NamespaceList
	if err := r.List(ctx, &namespaces, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return ctrl.Result{}, err
	}
	wanted, created := 0, 0
	keep := map[string]bool{}
	var failed error
	for _, ns := range namespaces.Items {
		if !ns.DeletionTimestamp.IsZero() {
			continue
		}
		wanted++
		keep[ns.Name] = true
		if err := r.apply(ctx, &m, ns.Name); err != nil {
			failed = err
			continue
		}
		created++
	}
	if _, err := r.prune(ctx, &m, keep); err != nil {
		return ctrl.Result{}, err
	}
	reason, message := "AllCreated", fmt.Sprintf("%d namespaces have the Secret", wanted)
	if failed != nil {
		reason = "NotCreated"
		message = fmt.Sprintf("%d of %d namespaces lack the Secret: %v", wanted-created, wanted, failed)
	}
	if err := r.writeStatus(ctx, &m, wanted, created, reason, message); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, failed
}

// apply creates or changes the Secret of a namespace, and refuses to touch one of somebody else.
func (r *MultiSecretReconciler) apply(ctx context.Context, m *MultiSecret, namespace string) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, secret, func() error {
		owned := secret.Labels[ownerName] == m.Name && secret.Labels[ownerNS] == m.Namespace
		if secret.UID != "" && !owned {
			return fmt.Errorf("Secret %s/%s already exists and belongs to somebody else", namespace, m.Name)
		}
		if secret.Labels == nil {
			secret.Labels = map[string]string{}
		}
		secret.Labels[ownerName], secret.Labels[ownerNS] = m.Name, m.Namespace
		secret.Type = m.Spec.Type
		secret.Data = map[string][]byte{}
		for k, v := range m.Spec.Data {
			secret.Data[k] = v
		}
		for k, v := range m.Spec.StringData {
			secret.Data[k] = []byte(v)
		}
		return nil
	})
	return err
}

// prune deletes the Secrets of namespaces that are not kept, and returns how many were left.
func (r *MultiSecretReconciler) prune(ctx context.Context, m *MultiSecret, keep map[string]bool) (int, error) {
	var secrets corev1.SecretList
	owned := labels.Set{ownerName: m.Name, ownerNS: m.Namespace}
	if err := r.List(ctx, &secrets, client.MatchingLabels(owned)); err != nil {
		return 0, err
	}
	left := 0
	for _, s := range secrets.Items {
		if keep[s.Namespace] {
			continue
		}
		left++
		if err := r.Delete(ctx, &s, client.Preconditions{UID: &s.UID}); err != nil && !apierrors.IsNotFound(err) {
			return left, err
		}
	}
	return left, nil
}

func (r *MultiSecretReconciler) cleanUp(ctx context.Context, m *MultiSecret) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(m, finalizer) {
		return ctrl.Result{}, nil
	}
	left, err := r.prune(ctx, m, nil)
	if err != nil || left > 0 {
		return ctrl.Result{RequeueAfter: 5 * time.Second}, err
	}
	controllerutil.RemoveFinalizer(m, finalizer)
	return ctrl.Result{}, r.Update(ctx, m)
}

// writeStatus writes the status if it differs.
func (r *MultiSecretReconciler) writeStatus(ctx context.Context, m *MultiSecret, wanted, created int, reason, message string) error {
	before := m.Status.DeepCopy()
	status := metav1.ConditionFalse
	if reason == "AllCreated" {
		status = metav1.ConditionTrue
	}
	if m.Status.Wanted != wanted || m.Status.Created != created || m.Status.ObservedGeneration != m.Generation {
		m.Status.ChangeTime = metav1.Now()
	}
	m.Status.Wanted, m.Status.Created, m.Status.ObservedGeneration = wanted, created, m.Generation
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: status, Reason: reason, Message: message, ObservedGeneration: m.Generation,
	})
	if reflect.DeepEqual(before, &m.Status) {
		return nil
	}
	return r.Status().Update(ctx, m)
}
