package main

const helpAll = `
Show what the pods of this node need, and have it done, through the hub on this node.

  edgehubctl pods                   the pods of this node, and which need an upgrade
  edgehubctl pull NAMESPACE/POD     pull the images of its new version ahead
  edgehubctl upgrade NAMESPACE/POD  replace it by a pod of the new version
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
  1  failed: the hub does not answer, or says no, and will again
  2  the words on the command line are wrong
  3  not done when --timeout had passed, or you interrupted it; it goes on
  4  not now: the hub refuses it as things are, such as an upgrade whose images are
     still being pulled, or while the cloud is away. The message says what to wait for
  5  upgrade --wait: the pod was replaced, and the new one does not run: it crashes, its
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
  NEEDS UPGRADE  yes, and to which revision: its DaemonSet has a newer version.
                 -: the cloud has not said; it does for DaemonSets that opted in
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
Upgrade a pod: it is deleted, and its DaemonSet makes one of the new version.

  edgehubctl upgrade shop/web-x7k2p         say so, and be done
  edgehubctl upgrade shop/web-x7k2p --wait  until the new pod is Ready, and stays so
  edgehubctl upgrade web-x7k2p -n shop

      --wait            until the new pod is Ready and stays so, without a restart, for
                        the minReadySeconds of its DaemonSet, or 10 seconds if it has
                        none; and tell what is waited for
      --timeout 10m     with --wait: wait no longer than that
  -o, --output json     for programs

The pod is away between the two. To keep that short, pull the images first:
edgehubctl pull. It takes the cloud, which makes the new pod.

Exit codes: 0 the old pod is being replaced (--wait: the new one runs), 1 failed,
2 wrong words, 3 --timeout has passed; it goes on, 4 not now: its images are still
being pulled, it needs no upgrade, or the cloud is away, 5 the new pod does not run, as
of now: it crashes, its image cannot be pulled, it was evicted; kubelet goes on trying.
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
Print a script that lets a shell complete commands, flags, and the pods that need an
upgrade.

  bash:  source <(edgehubctl completion bash)                     in ~/.bashrc
  zsh:   source <(edgehubctl completion zsh)       behind compinit in ~/.zshrc
  fish:  edgehubctl completion fish | source     in ~/.config/fish/config.fish
`
