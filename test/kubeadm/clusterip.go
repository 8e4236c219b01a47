package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// clusterIPWaits waits until the hub says that the cluster IP does not lead to it yet, since kube-proxy does not
// trust it.
func (c *Cluster) clusterIPWaits(ctx context.Context, say Say) error {
	if !c.options.ClusterIP {
		return nil
	}
	return c.eventually(ctx, say, "the cluster IP of the apiserver stays where it leads: pods run that do not trust the hub", func(ctx context.Context) error {
		access, err := c.podAccess(ctx)
		if err != nil {
			return err
		}
		for _, p := range access.Pods {
			if strings.HasPrefix(p.Name, "kube-proxy-") && p.Distrusts && access.ClusterIP != nil && !access.ClusterIP.InForce {
				return nil
			}
		}
		return fmt.Errorf("podAccess is %+v", access)
	})
}

// clusterIPLeads waits until the cluster IP leads to the hub while the cloud is there, and restarts the hub under a
// pod that knows its apiserver as https://kubernetes.default.svc.
func (c *Cluster) clusterIPLeads(ctx context.Context, say Say) error {
	if !c.options.ClusterIP {
		return nil
	}
	if err := c.eventually(ctx, say, "every pod trusts the hub, by its /debug/cache", func(ctx context.Context) error {
		access, err := c.podAccess(ctx)
		if err == nil && (access.ClusterIP == nil || !access.ClusterIP.InForce) {
			err = fmt.Errorf("podAccess is %+v", access)
		}
		return err
	}); err != nil {
		return err
	}
	if err := c.eventually(ctx, say, "kube-proxy leads "+serviceIP+" to it, with the cloud", func(ctx context.Context) error {
		rules, err := c.machines[edge].Run(ctx, "iptables-save", "--table=nat")
		if err == nil && (!strings.Contains(rules, "--to-destination 169.254.2.1:10268") || strings.Contains(rules, "--to-destination "+controlIP+":6443")) {
			err = errors.New("kube-proxy's rules are:\n" + rules)
		}
		return err
	}); err != nil {
		return err
	}
	return c.clusterIPAnswersAcross(ctx, say, func() error {
		if _, err := c.machines[edge].Run(ctx, "systemctl", "restart", "edgehub.service"); err != nil {
			return err
		}
		return c.hubIs(ctx, say, "online")
	})
}

// clusterIPAnswersAcross has a pod ask https://kubernetes.default.svc from before something happens until after it,
// and returns an error unless each answer is good.
func (c *Cluster) clusterIPAnswersAcross(ctx context.Context, say Say, happens func() error) error {
	if !c.options.ClusterIP {
		return happens()
	}
	informer, err := c.podIP(ctx, "informer")
	if err != nil {
		return err
	}
	const question = "https://kubernetes.default.svc"
	answers := 0
	ask := func() error {
		answer, err := c.get(ctx, "http://"+net.JoinHostPort(informer, "8080")+"/kubernetes")
		if err == nil && !strings.Contains(answer, `"kind":"ServiceList"`) {
			err = errors.New(answer)
		}
		answers++
		return err
	}
	if err := ask(); err != nil {
		return fmt.Errorf("a pod asks %s: %w", question, err)
	}
	happened := make(chan struct{})
	asked := make(chan error, 1)
	go func() {
		for {
			if err := ask(); err != nil {
				asked <- fmt.Errorf("a pod asks %s for the time no. %d, and not every time is answered: %w", question, answers, err)
				return
			}
			select {
			case <-happened:
				asked <- ask()
				return
			default:
			}
		}
	}()
	err = happens()
	close(happened)
	if err = errors.Join(err, <-asked); err == nil {
		say("a pod asked %s meanwhile, and was answered each of %d times", question, answers)
	}
	return err
}
