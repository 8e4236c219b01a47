package main

const helpAll = `
Show what the pods of this node need, and have it done, through the hub on this node.

  edgehubctl pods                   the pods of this node, and which need an upgrade
  edgehubctl pull NAMESPACE/POD     pull the images of its new version ahead
  edgehubctl upgrade NAMESPACE/POD  replace it by a pod of the new version, now or later
  edgehubctl queue                  what waits, is in progress, or has ended of late
  edgehubctl cancel NAMESPACE/POD   cancel what waits
  edgehubctl hold NAMESPACE/POD     have it not upgraded for some time
  edgehubctl rollback NAMESPACE/POD return to the version before
  edgehubctl history NAMESPACE/POD  versions that have run on this node
  edgehubctl status                 cloud, cache and images, as the hub sees them
  edgehubctl completion SHELL       let bash, zsh or fish complete all this

  edgehubctl COMMAND --help         more about a command
  edgehubctl --version

For all commands:
      --address HOST:PORT   where the hub listens; default 127.0.0.1:10267, or what is
                            in EDGEHUB_ADDRESS
      --certificate-authority FILE
                            for a hub that offers its API over TLS, as it does
                            with --serve-client-ca-file: its certificate, or its CA
      --client-certificate FILE, --client-key FILE
                            who you are to that hub
  -o, --output json         for programs

Exit codes:
  0  done
  1  failed: the hub does not answer, refuses and will refuse again, or is too old for
     the command
  2  the words on the command line are wrong
  3  not done when --timeout had passed, or you interrupted it; it goes on
  4  not now: the hub refuses it as things are, such as an upgrade whose images are
     still being pulled, or of a pod on hold. The message says what to wait for
  5  --wait: the pod was replaced or rolled back, and does not run now: it crashes, its
     image cannot be pulled, it was evicted. The message says which, and what to do
`

const helpPods = `
Show the pods of this node.

  edgehubctl pods
  edgehubctl pods -n shop           of one namespace
  edgehubctl pods -o json

What the columns mean:
  READY, STATUS, RESTARTS
                 as kubectl get pods shows them
  NEEDS UPGRADE  yes, and to which revision: its owner has a newer version.
                 -: the cloud has not said; it does for those that opted in. Then
                 what waits or was done: queued, scheduled, held, in progress, rolled
                 back; times are this node's
  IMAGE READY    whether the images of that revision are on the node; if not, how far
                 they are, or why not. -: nobody has asked for them
  SINCE          how long the pod has needed the upgrade
  IMAGE -> AFTER UPGRADE
                 what the upgrade changes; unknown: nobody has told this node

A terminal too narrow for all of them shows less of the upgrade; -o json has everything.
While the cloud is away, a line on stderr says since when: what is shown is what the
node knows, and a newer version may exist.

Exit codes: 0 shown, 1 failed, 2 wrong words, 4 not now: the hub knows no pods yet.
`

const helpPull = `
Pull the images of a pod's new version ahead of its upgrade, so that the upgrade is
short. The pod runs on; the hub keeps the images on the node until it is upgraded.

  edgehubctl pull shop/web-x7k2p            and show how it goes, until all is there
  edgehubctl pull web-x7k2p -n shop         the same; without -n, in namespace default
  edgehubctl pull shop/web-x7k2p --no-wait  only ask for it
  edgehubctl pull shop/web-x7k2p --cancel   end it, and let go of what is there

      --timeout 10m     wait no longer than that
  -o, --output json     a line for each change, with all the hub knows

It is the hub that pulls: closing this terminal does not end it, nor does a restart of
the hub or of the node. A failed attempt is repeated until it works; bytes that are on
the node are not fetched again. Asking once more has a failed image tried at once.

Exit codes: 0 all images are on the node (--no-wait: it is asked for; --cancel: it is
ended), 1 failed or cancelled, 2 wrong words, 3 not done in time; the hub goes on,
4 not now: the pod needs no upgrade, or one to another revision by now.
`

const helpUpgrade = `
Upgrade a pod: its images are pulled, then it is deleted, and its DaemonSet or
StatefulSet makes one of the new version.

  edgehubctl upgrade shop/web-x7k2p         pull, ask for the upgrade, and be done
  edgehubctl upgrade shop/web-x7k2p --wait  until the new pod is Ready, and stays so
  edgehubctl upgrade shop/web-x7k2p --at 03:00
  edgehubctl upgrade shop/web-x7k2p --window 02:00-05:00
  edgehubctl upgrade --all                  every pod that needs it; -n: of one namespace

      --no-pull         do not pull the images first
      --wait            until the new pod is Ready and stays so, without a restart, for
                        its minReadySeconds, or 10 seconds if it has none; and tell what
                        is waited for
      --timeout 10m     wait no longer than that, for the images and the new pod
      --at TIME         begin then: 03:00 is the next one by the clock of this machine,
                        2026-11-22T03:00:00+01:00 is any time within a year
      --window FROM-TO  begin within, once; --tz ZONE: an IANA name, or the hub's zone
      --force           in spite of a hold
      --all             one pod after the other; a failure does not end it
  -o, --output json     for programs; with --all, one value for each pod

While the cloud is away, the upgrade is queued until it is back. What is queued or
scheduled goes on without this program: edgehubctl queue shows it, edgehubctl cancel
ends it, and the hub pulls its images. Ctrl-C during the pull leaves the pull to the hub,
and requests no upgrade; later, the upgrade goes on.

Exit codes: 0 the old pod is being replaced, or the upgrade is queued or scheduled
(--wait: the new pod runs), 1 failed, or dropped since, 2 wrong words, 3 --timeout has
passed, or interrupted, 4 not now: it is on hold, or needs no upgrade, 5 the new pod does
not run, as of now: it crashes, its image cannot be pulled, it was evicted; kubelet goes
on trying. --all: that of the failures if they agree, else 1.
`

const helpQueue = `
Show the upgrades and rollbacks that wait or are in progress, and those that have
ended of late.

  edgehubctl queue
  edgehubctl queue -n shop          of one namespace
  edgehubctl queue -o json

What STATE means:
  queued       until the cloud can be reached
  scheduled    until the time that is shown, of this node
  held         until the pod's hold ends
  in progress  it has begun
  done, dropped (it no longer applies: MESSAGE is the reason), withdrawn (cancelled, or
  another one took its place)

Exit codes: 0 shown, 1 failed, or the hub is too old, 2 wrong words.
`

const helpCancel = `
Cancel an upgrade or rollback of a pod that waits, and has not begun.

  edgehubctl cancel shop/web-x7k2p

Exit codes: 0 cancelled, 1 nothing waits, or failed, 2 wrong words, 4 it has begun.
`

const helpHold = `
Have a pod not upgraded for some time, neither from here nor from the cloud.

  edgehubctl hold shop/web-x7k2p --for 2h --reason driving
  edgehubctl hold shop/web-x7k2p --remove
  edgehubctl hold shop/web-x7k2p            show the hold
  edgehubctl hold shop/web-x7k2p -o json

The app's admin decides how long at most; a day, if the admin says nothing.
upgrade --force and rollback --force act in spite of it.

Exit codes: 0 done, 1 failed, there is no hold, or the hub is too old, 2 wrong words,
4 not now: the pod may not be held, or not any longer.
`

const helpRollback = `
Return a pod to a version that this node has run before. Others are not affected.

  edgehubctl rollback shop/web-x7k2p            to the version before, and be done
  edgehubctl rollback shop/web-x7k2p --wait     until it runs, and stays Ready
  edgehubctl rollback shop/web-x7k2p --to 5d8f  to that revision, as history shows it

      --timeout 10m     with --wait: wait no longer than that
      --force           in spite of a hold
  -o, --output json     for programs

It lasts until there is a newer version, or until you upgrade. The pod stays, and the
containers whose images differ restart. While the cloud is away, it is queued.

Exit codes: 0 it is asked for (--wait: the earlier version runs), 1 failed, or dropped
since, 2 wrong words, 3 not done in time, or interrupted; it goes on, 4 not now: the
admin does not permit it, the pod is on hold, or there is no such version on this node,
5 the earlier version does not run, as of now.
`

const helpHistory = `
Show the versions of a pod's app that have run on this node, the current one first.

  edgehubctl history shop/web-x7k2p
  edgehubctl history shop/web-x7k2p -o json

ON NODE: whether all its images are on the node, and stay there for a rollback.

Exit codes: 0 shown, 1 failed, or the hub is too old, 2 wrong words, 4 not now.
`

const helpStatus = `
Show how the hub on this node is doing.

  edgehubctl status
  edgehubctl status -o wide         also the pods that do not use the hub alone
  edgehubctl status -o json

What the lines mean:
  hub        whether it can serve the node
  cloud      since when an apiserver can be reached, or cannot
  apiserver  each of them
  cache      what is kept for the time without the cloud. The oldest is the one that no
             apiserver has confirmed for longest; incomplete are those that nobody
             watched until they were whole
  pods       how many use the hub as their apiserver, and where. A pod that started
             before the hub was installed bypasses it, and so needs the cloud. So does
             one that has the hub's address, and connects past it now: -o wide says where
  transforms what pods find the hub by; edgehub --transforms turns them off
  pods' CA   what pods verify the hub with; edgehub rotate-ca replaces it
  images     what is pulled ahead of upgrades, and how far that is

Exit codes: 0 the hub is ready, with the cloud or without, 1 failed, 2 wrong words,
4 the hub is not ready yet.
`

const helpCompletion = `
Print a script that lets a shell complete commands, flags, and pods.

  bash:  source <(edgehubctl completion bash)                     in ~/.bashrc
  zsh:   source <(edgehubctl completion zsh)       behind compinit in ~/.zshrc
  fish:  edgehubctl completion fish | source     in ~/.config/fish/config.fish
`
