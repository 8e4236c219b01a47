package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

const (
	// controllerLease is the name of the lease that a working controller holds, and
	// controllerNamespace its namespace, unless the controller's flags set another.
	controllerLease     = "edgehub-controller"
	controllerNamespace = "edgehub-system"
	// overdue is how many times its duration a lease may go without renewal. A controller that
	// restarts renews it within two.
	overdue = 3
	// leasePeriod is how long an answer about the lease is used.
	leasePeriod = 10 * time.Second
)

// leaseCheck reports whether a controller is at work, by its lease. It is for one
// goroutine.
type leaseCheck struct {
	c       *cluster
	asked   time.Time
	leases  []coordinationv1.Lease
	allowed bool // to read leases
}

// warning returns what a person should know when nothing happens, or "". spoke
// reports whether the controller is known to have seen the present state.
func (p *leaseCheck) warning(ctx context.Context, spoke bool) string {
	now := p.c.clock.now()
	if now.Sub(p.asked) >= leasePeriod {
		p.ask(ctx)
		p.asked = now
	}
	if !p.allowed {
		return ""
	}
	return evaluateLeases(p.leases, now, spoke)
}

func (p *leaseCheck) ask(ctx context.Context) {
	named := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, controllerLease).String()}
	list, err := p.c.client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, named)
	if apierrors.IsForbidden(err) {
		list, err = p.c.client.CoordinationV1().Leases(controllerNamespace).List(ctx, named)
	}
	p.allowed = err == nil
	if err == nil {
		p.leases = list.Items
	}
}

func evaluateLeases(leases []coordinationv1.Lease, now time.Time, spoke bool) string {
	var newest *coordinationv1.Lease
	for i := range leases {
		l := &leases[i]
		if l.Spec.RenewTime != nil && (newest == nil || l.Spec.RenewTime.After(newest.Spec.RenewTime.Time)) {
			newest = l
		}
	}
	if newest == nil {
		if spoke {
			return "" // it may run without leader election
		}
		return "the controller seems not to run, so nothing will happen: there is no lease " + controllerLease +
			" (kubectl get deploy -A -l app.kubernetes.io/name=" + controllerLease + ")"
	}
	duration := time.Second // at least
	if seconds := newest.Spec.LeaseDurationSeconds; seconds != nil {
		duration = max(duration, time.Duration(*seconds)*time.Second)
	}
	silent := now.Sub(newest.Spec.RenewTime.Time)
	isHeld := newest.Spec.HolderIdentity != nil && *newest.Spec.HolderIdentity != ""
	if isHeld && silent <= overdue*duration {
		return ""
	}
	return fmt.Sprintf("the controller seems not to run, so nothing will happen: nobody has renewed its lease %s/%s since %s",
		newest.Namespace, newest.Name, newest.Spec.RenewTime.UTC().Format(time.DateTime+" UTC"))
}
