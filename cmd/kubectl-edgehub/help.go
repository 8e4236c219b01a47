package main

const helpAll = `
Show and steer the rollouts of DaemonSets that opted into an update strategy of
edgehub, and the upgrades of StatefulSets that did. Show which nodes keep their pods
while they are away.

  kubectl edgehub status             what opted in, a line each; with -A everywhere
  kubectl edgehub status ds/NAME     where a rollout stands, and what it waits for
  kubectl edgehub status sts/NAME    the same for a StatefulSet
  kubectl edgehub pause ds/NAME      delete no further pod
  kubectl edgehub resume ds/NAME     end a pause, or go on past the circuit breaker
  kubectl edgehub nodes              for how long pods stay on nodes that are away
  kubectl edgehub release NODE       evict the pods of a node that does not come back
  kubectl edgehub completion SHELL   let bash, zsh or fish complete all this

  kubectl edgehub COMMAND --help     more about a command
  kubectl edgehub --version

A DaemonSet is named as for kubectl: ds/NAME, daemonset/NAME, daemonset.apps/NAME or
ds NAME; a StatefulSet as sts/NAME and so on. The cluster is named as for kubectl,
too: --kubeconfig, --context, -n or --namespace, --cluster, --user, --server, --token,
--as, --request-timeout and so on, and KUBECONFIG.

How a DaemonSet opts in, and a StatefulSet, with OTA only:
  spec.updateStrategy.type: OnDelete
  metadata.annotations:
    apps.openyurt.io/update-strategy: AdvancedRollingUpdate   or OTA
With AdvancedRollingUpdate, the pods of nodes that are Ready are replaced step by
step; nodes that are not Ready hold up nothing and follow when they are Ready again.
With OTA, the owner of each node decides when; pause and resume are not for it.

How it is rolled out is up to further annotations, all of them optional:
  apps.openyurt.io/max-unavailable: 10%        of the Ready nodes; or a number
  apps.openyurt.io/partition: 3                so many pods stay as they are
  apps.openyurt.io/rollout-node-selector: zone=test
                                               only nodes with these labels
  apps.openyurt.io/rollout-paused: "true"      what pause sets and resume removes
  apps.openyurt.io/image-prepull: "true"       nodes pull the new images first, with
                                               OTA as well
  apps.openyurt.io/image-prepull-timeout: 30m  and a pod is kept for its images so long
What the owners of nodes may do is up to these, on StatefulSets as well:
  apps.openyurt.io/max-hold: 24h               put an upgrade off for so long; 0s: never
  apps.openyurt.io/owner-rollback: Allowed     go back to an earlier version; or Denied
  apps.openyurt.io/rollback-history: 1         of so many versions before, images stay
To undo a change of the pod template: kubectl rollout undo ds/NAME
`

const helpStatus = `
Show where the rollout of a DaemonSet stands, or the upgrade of a StatefulSet.

  kubectl edgehub status ds/web              one look
  kubectl edgehub status sts/db              one look at the pods of a StatefulSet
  kubectl edgehub status ds/web -w           until it is done, kept up to date
  kubectl edgehub status ds/web --nodes      with a table of the nodes
  kubectl edgehub status ds/web -o json      for programs
  kubectl edgehub status                     a line for each one in the namespace
  kubectl edgehub status -A                  a line for each one in the cluster

  -A, --all-namespaces  without a name: of all namespaces
  -w, --watch           wait until nothing is left to do
      --timeout 10m     wait no longer than that
      --ready-only      with --watch: do not wait for nodes that are not Ready
      --nodes           a row for each node; with --watch on no terminal, one for
                        each node that changes
  -o, --output json     everything, as JSON; with --watch a line for each change

What the lines mean:
  updated        the node runs the new revision, and its pod is available
  unavailable    the node is Ready and has no available pod; most of these are being
                 updated right now. The reason is told
  pending        the old pod is available, and is replaced when it is its turn; with
                 images first, not before its images are there
  not ready      the node is not Ready. It is left alone and not counted, and is
                 updated when it is Ready again
  held           the annotations, a pause, the circuit breaker or the owner of the
                 node (by a hold or a rollback) keep the old pod, or (by placement) the
                 node would get no new one: its taints or labels do not fit the new
                 revision
  for owners     (OTA) the old pod is there until the owner of the node upgrades it
If owners have decided something, these lines follow. They count nodes once more:
  on hold        the owner, or an app on the node, wants no upgrade before that time
  scheduled      an upgrade waits on the node for a time, or for a window of each day
  rolled back    the owner went back to an earlier revision
What owners decide while the cloud is away is known here when the node is back.

The circuit breaker: when nodes go NotReady soon after they were updated, at least
two of them, at least the maximum, and more than half of those updated, nothing more
is deleted until they are back, the pod template changes, or you say: resume.

The last line says what comes next. All of this is what the controller says, in an
annotation of the DaemonSet or StatefulSet; there is a warning if it does not run. Right
after a change it is updating, until the controller has seen that; it is unknown if the
controller says nothing, as those of earlier releases.

Exit codes:
  0  done: every node is updated, but for those that partition, node selector or
     placement hold, or whose owner went back
  1  failed: wrong words on the command line, no such DaemonSet, no right to read it,
     no connection. Needed are get, list and watch for daemonsets (or statefulsets),
     and list and watch for pods in its namespace; without a name, list for all
  2  not done; it goes on by itself, or waits for nodes or their owners; or unknown
  3  not done, and somebody must do something: it is paused, halted by the circuit
     breaker, pods do not come, may not be deleted or would be refused, or its
     annotations are wrong
Without a name, the highest of all counts.
Without --watch, these tell how it stands now. --watch ends with 0, or with 3 for wrong
annotations; it waits through a pause, a halt and a refusal. When --timeout has
passed, or you interrupt it, the code tells how it stands then.
`

const helpPause = `
Pause the rollout of a DaemonSet: no further pod is deleted. Nodes whose pod is being
replaced are not left without one: Kubernetes goes on making it.

  kubectl edgehub pause ds/web
  kubectl edgehub pause ds/web -n shop

This sets the annotation apps.openyurt.io/rollout-paused. It needs the rights to get
and patch the DaemonSet. Exit codes: 0 it is paused, 1 failed.
`

const helpResume = `
Let the rollout of a DaemonSet go on.

  kubectl edgehub resume ds/web

If it is paused, the pause ends: the annotation apps.openyurt.io/rollout-paused is
removed. If it is not paused but halted by the circuit breaker, it goes on with this
revision all the same: apps.openyurt.io/rollout-continue is set to it. The next change
of the pod template has a circuit breaker again. Where both is so, the first resume
ends the pause and tells of the breaker, the second goes past that.

Look first why nodes went NotReady (kubectl edgehub status ds/web; kubectl describe
node NAME). If the new revision is at fault, do not resume, but take it back: kubectl
rollout undo ds/web.

It needs the rights to get and patch the DaemonSet. Exit codes: 0 nothing holds it any
more, 1 failed, 3 the circuit breaker holds it still.
`

const helpNodes = `
Show for how long pods stay on nodes that are away.

  kubectl edgehub nodes              all nodes
  kubectl edgehub nodes edge07       one
  kubectl edgehub nodes -o json      for programs

  -o, --output json     everything, as JSON

What the columns mean:
  AUTONOMY       for how long the pods stay while the node is away: a duration, or
                 forever. released: they are evicted in spite of that. invalid: the
                 annotation cannot be read. -: that is up to Kubernetes, 5 minutes as
                 a rule
  OFFLINE SINCE  since when Kubernetes counts the node as away, which is 40 to 50
                 seconds after its last heartbeat
  HELD           so many of its pods stay for that. Pods of DaemonSets stay in any
                 case, and those with tolerations of their own are left alone
  UNTIL          when Kubernetes evicts the first of them, at the earliest

How a node opts in: kubectl annotate node NAME node.openyurt.io/autonomy-duration=24h
where 0 is any outage; or a label that the controller's configuration selects.

It needs the rights to get and list nodes, and to list pods in all namespaces. Exit
codes: 0 done, 1 failed.
`

const helpRelease = `
Give up waiting for a node that is away: its pods are evicted now.

  kubectl edgehub release edge07

This sets the annotation apps.openyurt.io/autonomy-released of the Node, for which the
controller has the node's pods evicted. It removes the annotation when the node is back,
whose pods stay again in the next outage. Released once more, nothing changes. A node
that is Ready is refused: kubectl drain is for that.

The pods are Terminating until the node is back, and their containers run on there if it
is only cut off. Deployments have new pods elsewhere at once; StatefulSets, and pods with
volumes that cannot move, have not. What to do is printed where there are such pods.

It needs the rights to get and patch nodes, and to list pods in all namespaces. Exit
codes: 0 it is released, 1 failed.
`

const helpCompletion = `
Let a shell complete commands, flags, and the names of DaemonSets, StatefulSets, nodes,
namespaces and contexts.

kubectl edgehub, where kubectl itself is completed: kubectl asks an executable with
this name, in a folder of PATH, which is the same program by another name:
  ln -s kubectl-edgehub /usr/local/bin/kubectl_complete-edgehub

kubectl-edgehub, called by itself, with the script that this command prints:
  bash:  source <(kubectl-edgehub completion bash)                 in ~/.bashrc
  zsh:   source <(kubectl-edgehub completion zsh)   behind compinit in ~/.zshrc
  fish:  kubectl-edgehub completion fish | source in ~/.config/fish/config.fish
`
