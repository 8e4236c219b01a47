// What the page shows for a state. act are the functions that its buttons call.
import { h } from './dom.js';
import * as text from './text.js';

const { t, time, bytes } = text;

const final = (u) => ['Done', 'Dropped', 'Withdrawn'].includes(u.state);

// keyOf returns what stays the same when an app's pod is replaced.
export const keyOf = (app) => (app.kind === 'DaemonSet' ? `${app.namespace}/DaemonSet/${app.workload}` : `${app.namespace}/${app.pod}`);
export const nameOf = (app) => app.workload || app.pod;

// mayUpgrade reports whether the owner has a say in the app.
const mayUpgrade = (app) => Boolean(app.update || app.upgrade || app.hold || app.mayHold || app.mayRollback);

export function view(s, act) {
  const body = s.apps && s.node && s.events
    ? h('div', { class: 'columns', key: 'columns' }, apps(s, act), queue(s, act), node(s, act), events(s))
    : h('p', { class: 'loading', key: 'loading' }, t('loading'));
  return [
    h('a', { class: 'skip', href: '#apps', key: 'skip' }, t('skip')),
    header(s, act),
    h('main', { key: 'main' }, status(s), missing(s), access(s), body),
    h('p', { class: 'hidden', role: 'status', key: 'say' }, s.say),
    dialog(s, act),
  ];
}

function header(s, act) {
  return h('header', { key: 'header' },
    h('h1', null, h('span', { class: 'product' }, 'edgehub'), ' ', s.node?.node),
    h('button', { type: 'button', class: 'quiet', lang: text.current() === 'zh' ? 'en' : 'zh-CN', 'aria-label': t('languageLabel'), onclick: act.switchLanguage }, t('language')),
    h('label', null, h('span', { class: 'hidden' }, t('theme')),
      h('select', { '.value': s.theme, onchange: (e) => act.chooseTheme(e.target.value) },
        ['auto', 'light', 'dark'].map((value) => h('option', { value }, t(value))))));
}

// status has one line whatever happens, so that nothing below it moves.
function status(s) {
  let kind = 'wait';
  let line = t('loading');
  if (s.stale) {
    [kind, line] = ['bad', s.refused ? text.parts('refused', { why: english(s.refused) }) : t('stale', { when: time(s.stale) })];
  } else if (s.node?.ready) {
    [kind, line] = ['bad', text.parts('notReady', { why: english(s.node.ready) })];
  } else if (s.node?.unregistered) {
    [kind, line] = ['bad', english(s.node.unregistered)];
  } else if (s.node) {
    kind = s.node.online ? 'ok' : 'warn';
    line = t(s.node.online ? 'online' : 'offline', { when: time(s.node.since) });
  }
  return h('p', { class: `status ${kind}`, key: 'status' }, dot(), h('span', null, line));
}

function missing(s) {
  return s.node?.missing?.map((m) => h('p', { class: 'status bad', role: 'alert', key: `${m.namespace}/${m.workload}` },
    dot(), h('span', null, text.parts('missing', { app: m.workload, when: time(m.since), why: english(m.why) }))));
}

function access(s) {
  if (s.token && !s.errors.token) return null;
  return h('div', { class: 'access', key: 'access' }, failure(s, 'token'),
    s.token ? null : h('p', null, text.parts('readOnly', { command: h('code', null, 'edgehubctl web') })));
}

const dot = () => h('span', { class: 'dot', 'aria-hidden': 'true' });
const english = (line) => h('span', { lang: 'en' }, line);
const failure = (s, key) => (s.errors[key] ? h('p', { class: 'error', role: 'alert', key: 'error' }, s.errors[key]) : null);

// A button that cannot be used for the moment stays in the tab order.
function button(s, where, label, onclick, kind = '') {
  const busy = s.busy.has(where);
  return h('button', { type: 'button', class: kind, key: label, 'aria-disabled': busy ? 'true' : null, onclick: busy ? null : onclick }, label);
}

const section = (name, ...body) => h('section', { class: name, id: name, key: name, tabindex: '-1', 'aria-labelledby': `${name}-title` },
  h('h2', { id: `${name}-title` }, t(name)), body);

function apps(s, act) {
  const all = listed(s);
  const own = all.filter((a) => mayUpgrade(a.app) || a.change);
  const others = all.filter((a) => !own.includes(a));
  return section('apps',
    all.length ? null : h('p', { class: 'empty' }, t('noApps')),
    own.map((a) => card(a, s, act)),
    others.length ? h('section', { class: 'card others', key: 'others', 'aria-labelledby': 'others-title' },
      h('h3', { id: 'others-title' }, t('others')),
      h('ul', null, others.map((a) => h('li', { key: a.id }, head(a), details(a, s, act))))) : null);
}

// listed returns the apps, and those that an upgrade has just taken away.
function listed(s) {
  const found = new Map();
  for (const app of s.apps.items ?? []) {
    const key = keyOf(app);
    const other = found.get(key);
    if (other && (app.deleting || !other.app.deleting)) found.set(app.uid, { app, key, id: app.uid });
    else found.set(key, { app, key, id: key, change: s.changes[key] });
  }
  for (const [key, change] of Object.entries(s.changes)) {
    if (!found.has(key) && !change.done) found.set(key, { app: change.app, key, id: key, change, gone: true });
  }
  return [...found.values()];
}

// phase returns how far an upgrade is that this browser has seen begin: replacing, starting or done. One that
// was queued may also wait again, or be dropped.
function phase({ app, change, gone }) {
  if (!change) return '';
  if (change.done) return 'done';
  if (gone || app.uid !== change.uid) return 'starting';
  return change.queued && !(app.upgrade?.action === 'Upgrade' && ['InProgress', 'Done'].includes(stateOf(app.upgrade))) ? '' : 'replacing';
}

function head(a, level = 'h4') {
  const { app } = a;
  const now = phase(a);
  let [kind, label] = app.ready ? ['ok', 'running'] : ['warn', 'starting'];
  if (app.trouble) kind = 'bad';
  if (app.deleting) [kind, label] = ['warn', 'stopping'];
  if (now === 'replacing' || now === 'starting') [kind, label] = ['busy', 'replacing'];
  else if (app.upgrade?.state === 'InProgress') [kind, label] = ['busy', app.upgrade.action === 'Rollback' ? 'goingBack' : 'replacing'];
  return h('div', { class: 'head' },
    h('div', null,
      h(level, { id: `app-${a.id}` }, nameOf(app)),
      h('p', { class: 'muted' }, `${app.namespace} · ${text.images(app.images)}`)),
    h('p', { class: `state ${kind}` }, dot(), t(label)));
}

function card(a, s, act) {
  const { app } = a;
  const now = phase(a);
  const busy = now === 'replacing' || now === 'starting';
  return h('article', { class: 'card', key: a.id, tabindex: '-1', 'aria-labelledby': `app-${a.id}` },
    head(a, 'h3'),
    app.trouble && !a.gone ? h('p', { class: 'trouble' }, english(app.trouble)) : null,
    busy ? h('p', { class: 'note' }, now === 'starting' ? t('newStarting') : t('replacing') + ' …', slow(a)) : null,
    now === 'done' && !app.update ? h('p', { class: 'note good' }, t('upgraded', { when: time(new Date(a.change.done).toISOString()) })) : null,
    now === 'replacing' || a.gone ? null : offer(a, s, act), // a new version that fails can be taken back
    failure(s, a.key),
    a.gone ? null : details(a, s, act));
}

function slow({ change }) {
  const minutes = Math.floor((Date.now() - change.at) / 60000);
  return minutes >= 3 ? ' ' + t('replaceSlow', { n: minutes }) : '';
}

// An upgrade in place has words of its own for its states.
export const stateOf = (u) => u?.inPlace?.state ?? u?.state;
export const timeOf = (u) => u.inPlace?.until ?? u.ended ?? u.next ?? u.at;

// upgradeLine is what an upgrade is and where it stands.
function upgradeLine(u) {
  const state = stateOf(u);
  const line = text.known(state) ? t(state, { when: time(timeOf(u)) }) : state;
  const action = text.known(u.action) ? t(u.action) : u.action;
  const within = u.window && !final(u) ? ` (${u.window}${u.timeZone ? ' ' + u.timeZone : ''})` : '';
  const message = u.inPlace && !u.inPlace.reason ? null : u.message; // the words say it
  return [h('strong', null, u.inPlace ? line : action), u.inPlace ? '' : ` ${line}${within}`,
    message ? [h('br'), h('span', { class: 'muted', lang: 'en' }, message)] : null];
}

// offer is what there is to decide on: the update, an upgrade that waits, a hold; and the buttons for it.
function offer(a, s, act) {
  const { app } = a;
  const update = app.deleting ? null : app.update;
  const over = app.upgrade?.state === 'Withdrawn' || (app.upgrade?.state === 'Done' && app.upgrade.action === 'Upgrade' && update && stateOf(app.upgrade) !== 'Passed');
  const upgrade = over ? null : app.upgrade;
  const actions = s.token ? choices(a, s, act) : [];
  if (!update && !upgrade && !app.hold && !actions.length) return null;
  return h('div', { class: update || upgrade || app.hold ? 'strip' : 'plain', key: 'offer' },
    update ? [
      h('p', null, h('strong', null, t('update')), ' ', text.images(update.images)),
      download(update),
      update.blocked && !unpulled(update) && !app.hold ? h('p', { class: 'trouble' }, text.parts('blocked', { why: english(update.blocked) })) : null,
    ] : null,
    upgrade ? h('p', { key: 'upgrade' }, upgradeLine(upgrade)) : null,
    app.hold ? h('p', { key: 'hold' }, text.parts(app.hold.reason ? 'heldWhy' : 'held', { when: time(app.hold.until), why: app.hold.reason }),
      app.hold.reported ? '' : ` (${t('heldLocally')})`) : null,
    actions.length ? h('div', { class: 'actions', key: 'actions' }, actions) : null);
}

export const active = (pull) => pull?.state === 'Queued' || pull?.state === 'Pulling';

// unpulled reports whether the update's images were asked for and are not here: that is why it is blocked.
const unpulled = (update) => Boolean(update.pull) && !update.here;

// download says how far the images are.
function download(update) {
  const { pull } = update;
  if (update.here) {
    return h('p', null, t(update.seconds ? 'hereFor' : 'here', { n: update.seconds }));
  }
  if (active(pull)) {
    const images = pull.images ?? [];
    const done = images.reduce((sum, i) => sum + i.bytesDone, 0);
    const total = images.every((i) => i.bytesTotal) ? images.reduce((sum, i) => sum + i.bytesTotal, 0) : 0;
    let line = t(total ? 'pulling' : 'pullingUnknown', { done: bytes(done), total: bytes(total) });
    if (pull.state === 'Queued') line = t('pullQueued');
    return [
      h('p', null, line),
      h('progress', { 'aria-label': line, max: total || 1, value: total ? done : null }),
    ];
  }
  if (pull?.state === 'Failed') return (pull.images ?? []).filter((i) => i.state === 'Failed').map(failed);
  return h('p', null, update.bytes ? t('download', { size: bytes(update.bytes) }) : t('downloadUnknown'));
}

const helps = {
  Unauthorized: 'helpUnauthorized', ImageNotFound: 'helpNotFound', InvalidImageName: 'helpNotFound', NoImageForPlatform: 'helpNotFound',
  InsufficientSpace: 'helpNoSpace', RegistryUnreachable: 'helpRegistry', RegistryBusy: 'helpRegistry', CertificateNotTrusted: 'helpUntrusted',
  ContainerdUnavailable: 'helpContainerd',
};

function failed(i) {
  return h('div', { class: 'trouble', key: i.image },
    h('p', null, text.parts('pullFailed', { reason: i.reason, error: english(i.lastError) })),
    h('p', null, t('help', { text: t(helps[i.reason] ?? 'helpOther') }), ' ', i.nextRetry ? t('retryAt', { when: time(i.nextRetry) }) : t('noRetry')));
}

const waits = (app) => Boolean(app.upgrade) && !final(app.upgrade);
const waiting = (u) => Boolean(u) && !final(u) && u.state !== 'InProgress';

// choices are the buttons of an app.
function choices({ app, key }, s, act) {
  if (app.deleting) return [];
  const { update } = app;
  const add = (label, onclick, kind) => button(s, key, t(label), onclick, kind);
  return [
    update ? forUpdate(app, s, act, add) : null,
    waiting(app.upgrade) ? add('cancel', () => act.cancelUpgrade(app, key)) : null,
    app.hold ? add('endHold', () => act.endHold(app)) : null,
    app.mayHold && !app.hold && (update || waits(app)) ? add('notNow', () => act.ask('hold', app)) : null,
    mayGoBack(app) && app.previous?.length ? add('rollback', () => act.ask('rollback', app, { images: app.previous }), 'quiet') : null,
  ].flat().filter(Boolean);
}

// The node goes back from these by itself.
const returns = (app) => ['InProbation', 'Passed'].includes(stateOf(app.upgrade));
const mayGoBack = (app) => app.mayRollback && !app.hold && (!waits(app) || returns(app));

function forUpdate(app, s, act, add) {
  const { update } = app;
  // The hub pulls what is missing until then.
  const later = !app.hold && !waits(app) && (!update.blocked || unpulled(update)) ? add('later', () => act.ask('later', app)) : null;
  // What is scheduled can be done at once instead.
  const may = !update.blocked && !app.hold && (!waits(app) || (app.upgrade.state === 'Scheduled' && s.node.online));
  const inPlace = update.inPlace && !s.node.online;
  if (update.here || !s.node.pulls) {
    const [label, start] = inPlace ? ['upgradeInPlace', () => act.ask('inPlace', app)] : [upgradeLabel(s), () => act.upgrade(app)];
    return [may ? add(label, start, 'primary') : null, later];
  }
  const cancel = add('cancelPull', () => act.cancelPull(app));
  if (active(update.pull)) return [cancel, later];
  if (update.pull?.state === 'Failed') return [add('retry', () => act.pull(app), 'primary'), cancel];
  return [add('pull', () => act.pull(app), 'primary'), later, may && !inPlace ? add('upgradeWithout', () => act.ask('without', app)) : null];
}

const upgradeLabel = (s) => (s.node.online ? 'upgradeNow' : 'upgradeQueued');

function details({ app, key }, s, act) {
  const row = (name, value) => [h('dt', null, t(name)), h('dd', null, value)];
  const own = mayUpgrade(app);
  return h('details', { key: 'details', ontoggle: (e) => act.toggle(app, key, e.target.open && own) },
    h('summary', null, t(own ? 'details' : 'detailsOnly')),
    h('dl', null,
      row('pod', `${app.namespace}/${app.pod}` + (app.workload ? ` (${app.kind} ${app.workload})` : '')),
      row('images', (app.images ?? []).map((i) => h('div', null, i))),
      row('started', time(app.started)),
      row('restarts', String(app.restarts))),
    app.trouble && !own ? h('p', { class: 'trouble' }, english(app.trouble)) : null,
    own && s.histories[key] ? history(app, key, s, act) : null);
}

function history(app, key, s, act) {
  const { items, error } = s.histories[key];
  const back = (r) => s.token && mayGoBack(app) && !waits(app) && !r.current && r.retained && !r.blocked;
  return h('div', { class: 'history', key: 'history' },
    h('h4', null, t('history')),
    error ? h('p', { class: 'error', role: 'alert' }, error) : null,
    items && !items.length ? h('p', { class: 'muted' }, t('noHistory')) : null,
    items?.length ? h('ul', null, items.map((r) => h('li', { key: r.revision },
      h('span', null, text.images(r.images), ' ', h('span', { class: 'muted' }, `${r.revision} · ${t('sinceWhen', { when: time(r.since) })}`
        + (r.current ? ` · ${t('current')}` : '') + (r.retained || r.current ? '' : ` · ${t('notRetained')}`))),
      r.blocked ? h('p', { class: 'muted' }, english(r.blocked)) : null,
      back(r) ? button(s, key, t('rollback'), () => act.ask('rollback', app, r), 'quiet') : null))) : null);
}

// queue has what waits, in the order of the requests, and then what has ended, the last first.
function queue(s, act) {
  const ended = s.upgrades.filter(final).reverse();
  const items = [...s.upgrades.filter((u) => !final(u)), ...ended.slice(0, 5)];
  return section('queue',
    h('div', { class: 'card' },
      items.some((u) => !final(u)) ? null : h('p', { class: 'empty', key: 'empty' }, t('emptyQueue')),
      items.length ? h('ul', { key: 'list' }, items.map((u) => queued(u, s, act))) : null,
      more(ended.slice(5), (u) => queued(u, s, act))));
}

function queued(u, s, act) {
  const where = `queue ${u.uid} ${u.action} ${u.requested}`;
  return h('li', { key: where },
    h('p', null, `${u.namespace}/${u.pod}: `, upgradeLine(u)),
    s.token && waiting(u) ? button(s, where, t('cancel'), () => act.cancelUpgrade(u, where)) : null,
    failure(s, where));
}

// more hides what is left of a list until somebody asks for it.
function more(items, item) {
  return items.length ? h('details', { key: 'more' }, h('summary', null, t('more', { n: items.length })), h('ol', null, items.map(item))) : null;
}

function node(s, act) {
  const n = s.node;
  return section('node',
    h('div', { class: 'card' }, h('dl', { class: 'facts' },
      (n.disks ?? []).map(disk),
      fact(t('cache'), n.cache.trouble ? h('span', { class: 'trouble' }, english(n.cache.trouble)) : t('cacheOK', { size: bytes(n.cache.bytes), n: text.number(n.cache.views) })),
      n.certificates?.length ? fact(t('certificates'), n.certificates.map((c) => certificate(c, n))) : null,
      fact(t('month'), t('traffic', { received: bytes(n.traffic.received), sent: bytes(n.traffic.sent) }),
        h('p', { class: 'muted' }, t('trafficSince', { when: text.day(n.traffic.since.slice(0, 19)) }))), // by the node's calendar
      clock(s),
      fact(t('version'), n.version),
      fact(t('support'), h('p', { class: 'muted' }, t('bundleText')),
        s.token ? button(s, 'bundle', t('bundle'), act.bundle) : null, failure(s, 'bundle')))));
}

// clock is the node's. A document may be a minute old when it arrives.
function clock({ node, skew }) {
  const off = Math.round(Math.abs(skew) / 60000);
  return fact(t('clock'), h('p', null, text.local(node.time)), off > 2 ? h('p', { class: 'trouble' }, t('clockOff', { n: text.number(off) })) : null);
}

const fact = (name, ...value) => h('div', null, h('dt', null, name), h('dd', null, value));

function disk(d) {
  const name = { hub: 'diskHub', images: 'diskImages', 'hub,images': 'diskBoth' }[d.holds] ?? 'disk';
  const line = t('free', { free: bytes(d.free), total: bytes(d.total) });
  return fact(t(name),
    h('meter', { 'aria-label': `${t(name)}: ${line}`, min: 0, max: d.total || 1, low: d.total * 0.8, high: d.total * 0.9, optimum: 0, value: d.total - d.free }),
    h('p', null, line), h('p', { class: 'muted path' }, d.path));
}

function certificate(c, n) {
  const names = { node: 'node', pods: 'certPods', api: 'certAPI' };
  const expired = Date.parse(c.expires) < Date.parse(n.time);
  return h('p', { class: expired ? 'trouble' : '' }, `${names[c.name] ? t(names[c.name]) : c.name}: `, t(expired ? 'expired' : 'expires', { when: text.day(c.expires) }));
}

function events(s) {
  const items = s.events.items ?? [];
  const shown = 6;
  return section('events',
    h('div', { class: 'card' },
      items.length ? h('ol', { key: 'list' }, items.slice(0, shown).map(event)) : h('p', { class: 'empty', key: 'empty' }, t('noEvents')),
      more(items.slice(shown), event)));
}

function event(e) {
  return h('li', { class: e.type === 'Warning' ? 'warning' : '' },
    h('p', null, h('time', { datetime: e.last }, time(e.last)), ' ',
      e.type === 'Warning' ? [h('strong', { class: 'tag' }, t('Warning')), ' '] : null,
      h('strong', null, e.reason), ' ', h('span', { class: 'muted' }, `${e.kind} ${e.namespace ? e.namespace + '/' : ''}${e.name}`,
        e.count > 1 ? ` · ${t('times', { n: text.number(e.count) })}` : '')),
    h('p', { lang: 'en' }, e.message));
}

function dialog(s, act) {
  const d = s.dialog;
  if (!d) return null;
  const { body, label } = forms[d.kind](d, s);
  const close = () => act.closeDialog(d);
  return h('dialog', { key: d.id, 'aria-labelledby': 'dialog-title', onclose: close },
    h('form', { onsubmit: (e) => { e.preventDefault(); act.submit(d, new FormData(e.target)); } },
      h('h2', { id: 'dialog-title' }, t(`${d.kind}Title`, { app: nameOf(d.app), version: text.images(d.to?.images) })),
      text.known(`${d.kind}Text`) ? h('p', null, t(`${d.kind}Text`)) : null, body, failure(s, 'dialog'),
      h('div', { class: 'actions' },
        h('button', { class: 'primary', 'aria-disabled': s.busy.has('dialog') ? 'true' : null }, t(label)),
        h('button', { type: 'button', onclick: close }, t('close')))));
}

// forms are the dialogs by kind: the button that does it, and what is asked besides the kind's Title and Text.
const forms = {
  without: (_, s) => ({ label: upgradeLabel(s) }),
  inPlace: () => ({ label: 'upgradeNow' }),
  later: (_, s) => ({
    label: 'schedule',
    body: [
      h('fieldset', { oninput: choose },
        h('legend', null, radio('when', 'window', t('tonight'), true)),
        h('label', null, t('from'), ' ', h('input', { type: 'time', name: 'from', value: '02:00', required: true })), ' ',
        h('label', null, t('to'), ' ', h('input', { type: 'time', name: 'to', value: '05:00', required: true })),
        zone(s.node)),
      h('fieldset', { oninput: choose },
        h('legend', null, radio('when', 'at', t('atTime'), false)),
        h('label', null, t('when'), ' ', h('input', { type: 'datetime-local', name: 'at', value: tomorrow(s.node.time) }))),
    ],
  }),
  hold: () => ({
    label: 'hold',
    body: [
      h('label', null, t('holdFor'), ' ', h('select', { name: 'for' }, [0.5, 1, 2, 4, 8, 12, 24].map((n) => h('option', { value: `${n}h`, selected: n === 2 }, t('hours', { n: text.number(n) }))))),
      h('label', null, t('reason'), ' ', h('input', { type: 'text', name: 'reason', maxlength: 60 })),
    ],
  }),
  rollback: ({ app }, s) => ({ label: 'goBack', body: s.node.online || returns(app) ? null : h('p', null, t('rollbackOffline')) }),
};

// choose chooses the part of a form that somebody fills in.
const choose = (e) => { e.currentTarget.querySelector('[type=radio]').checked = true; };

// zone is whose clock a window is by, which is a question only where the clocks differ.
function zone(node) {
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const nodes = t('nodeClock', { when: node.time.slice(11, 16) });
  if (!here || text.offset(node.time) === -new Date(node.time).getTimezoneOffset()) return h('p', { class: 'muted' }, `${t('whoseClock')} ${nodes}`);
  return h('label', null, t('whoseClock'), ' ', h('select', { name: 'tz' },
    h('option', { value: '' }, nodes),
    h('option', { value: here }, t('browserClock', { zone: here }))));
}

const radio = (name, value, label, checked) => h('label', null, h('input', { type: 'radio', name, value, checked }), ' ', label);

// tomorrow is 03:00 of the next day in the browser's time zone, as datetime-local wants it.
function tomorrow(now) {
  const date = new Date(now);
  date.setDate(date.getDate() + 1);
  date.setMinutes(date.getMinutes() - date.getTimezoneOffset());
  return `${date.toISOString().slice(0, 10)}T03:00`;
}
