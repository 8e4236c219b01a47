// The page's state: what the hub's stream sends, what the owner does, and what the browser remembers.
import { render } from './dom.js';
import * as text from './text.js';
import { active, keyOf, nameOf, stateOf, timeOf, view } from './view.js';

const api = '/openyurt.io/v1/';
const tokenHeader = 'Edgehub-Token';

const s = {
  apps: null, node: null, events: null, upgrades: [], // as in the API
  stale: null, // since when the hub has not answered
  refused: null, // why the hub sends nothing, though it answers
  skew: 0, // by how much the node's clock is ahead of the browser's, in ms
  token: null, theme: 'auto',
  errors: {}, busy: new Set(), // by where the action was taken
  histories: {}, // by app
  changes: {}, // upgrades that this browser has begun, by app
  dialog: null, say: '',
};

// ---- What the browser remembers. All of it may be refused, or shared with another tab.

function recall(name) {
  try {
    return JSON.parse(localStorage.getItem(`edgehub-${name}`));
  } catch {
    return null;
  }
}

function remember(name, value) {
  try {
    if (value === null) localStorage.removeItem(`edgehub-${name}`);
    else localStorage.setItem(`edgehub-${name}`, JSON.stringify(value));
  } catch { /* A browser may keep nothing: then it lasts until the tab is closed. */ }
}

function recallAll() {
  const token = recall('token');
  s.token = token && !(Date.parse(token.expires) < Date.now()) ? token.token : null;
  s.theme = ['light', 'dark'].includes(recall('theme')) ? recall('theme') : 'auto';
  s.changes = recall('changes') ?? {};
  document.documentElement.dataset.theme = s.theme;
  text.choose(recall('language') ?? text.preferred());
}

// ---- Drawing, at most once a frame.

let drawn = false;
function draw() {
  if (drawn) return;
  drawn = true;
  requestAnimationFrame(drawNow);
}

function drawNow() {
  drawn = false;
  const updates = (s.apps?.items ?? []).filter((a) => a.update).length;
  document.title = `${updates ? `(${updates}) ` : ''}${s.node ? `${s.node.node} · ` : ''}edgehub`;
  render(document.body, view(s, act));
  const dialog = document.querySelector('dialog');
  if (dialog && !dialog.open) dialog.showModal();
}

// say has a screen reader read a line.
function say(line) {
  s.say = line;
}

// ---- What the hub sends.

let stream = null;
let heard = 0;
let retry = 0;

function listen() {
  stream?.close();
  stream = new EventSource(`${api}stream`);
  for (const name of ['apps', 'node', 'events']) {
    stream.addEventListener(name, (e) => take(name, JSON.parse(e.data)));
  }
  stream.onopen = answered;
  stream.onerror = () => {
    lost();
    // A browser connects again by itself, unless the answer was an error.
    if (stream?.readyState === EventSource.CLOSED) {
      explain();
      clearTimeout(retry);
      retry = setTimeout(listen, 3000);
    }
  };
}

// explain asks why the stream is an error, which an EventSource does not show.
async function explain() {
  const end = new AbortController();
  try {
    const answer = await fetch(`${api}stream`, { signal: end.signal });
    s.refused = answer.ok ? null : await reason(answer);
  } catch {
    s.refused = null;
  }
  end.abort();
  draw();
}

function answered() {
  heard = Date.now();
  if (!s.stale) return;
  s.stale = s.refused = null;
  draw();
}

function lost() {
  s.stale ??= new Date(heard || Date.now()).toISOString();
  draw();
}

function take(name, document) {
  answered();
  const before = s[name];
  s[name] = document;
  if (name === 'apps') {
    follow(before);
    askUpgrades();
  }
  if (name === 'node') {
    s.skew = Date.parse(document.time) - Date.now();
    if (before?.online !== document.online) say(text.t(document.online ? 'online' : 'offline', { when: text.time(document.since) }));
  }
  draw();
}

// follow announces what has changed with each app, and notes which upgrades are done.
function follow(before) {
  const old = new Map((before?.items ?? []).map((a) => [keyOf(a), a]));
  for (const app of s.apps.items ?? []) {
    const key = keyOf(app);
    // What was queued or scheduled begins without a request.
    if (app.upgrade?.action === 'Upgrade' && stateOf(app.upgrade) === 'InProgress' && s.changes[key]?.uid !== app.uid) begin(app, true);
    const change = s.changes[key];
    if (change && !change.done && app.uid !== change.uid && app.ready && !app.deleting) {
      change.done = Date.now();
      remember('changes', s.changes);
      tell(app, 'upgraded', { when: text.time(new Date().toISOString()) });
    }
    if (before) announce(app, old.get(key));
    if (s.histories[key] && String(old.get(key)?.images) !== String(app.images)) act.toggle(app, key, true);
  }
  for (const [key, change] of Object.entries(s.changes)) {
    if (Date.now() - change.at < 3600e3) continue;
    delete s.changes[key];
    remember('changes', s.changes);
  }
}

function begin(app, queued) {
  s.changes[keyOf(app)] = { uid: app.uid, at: Date.now(), app, queued };
  remember('changes', s.changes);
}

function announce(app, old) {
  if (active(app.update?.pull) && !active(old?.update?.pull)) tell(app, 'begins');
  if (app.update?.here && old?.update && !old.update.here) tell(app, 'here');
  if (app.update?.pull?.state === 'Failed' && old?.update?.pull?.state !== 'Failed') tell(app, 'failed');
  if (app.hold && !old?.hold) tell(app, 'held', { when: text.time(app.hold.until) });
  if (!app.hold && old?.hold) say(text.t('sayReleased', { app: nameOf(app) }));
  const state = stateOf(app.upgrade);
  if (state && state !== stateOf(old?.upgrade) && text.known(state)) tell(app, state, { when: text.time(timeOf(app.upgrade)) });
}

const tell = (app, state, values) => say(text.t('say', { app: nameOf(app), state: text.t(state, values) }));

// The list of upgrades also has those of pods that are gone. It is asked for when apps have changed, one
// request at a time.
let asking = false;
let askAgain = false;
async function askUpgrades() {
  if (asking) {
    askAgain = true;
    return;
  }
  asking = true;
  try {
    const answer = await fetch(`${api}upgrades`);
    if (answer.ok) s.upgrades = (await answer.json()).items ?? [];
    draw();
  } catch { /* The stream notices that the hub is away, and asks again once it is back. */ }
  asking = false;
  if (askAgain) {
    askAgain = false;
    askUpgrades();
  }
}

// A hub that hangs keeps the stream open: ask it.
async function checkHub() {
  if (document.hidden || Date.now() - heard < 15e3) return;
  try {
    await fetch('/v1/healthz', { signal: AbortSignal.timeout(5000) });
    if (stream?.readyState === EventSource.OPEN) answered();
  } catch {
    lost();
  }
}

// A hidden tab leaves its connection to others: a browser has six for one address.
function watchTab() {
  if (document.hidden) {
    clearTimeout(retry);
    stream?.close();
    stream = null;
  } else if (!stream) {
    listen();
  }
}

// ---- What the owner does.

// send makes a request that changes something. It returns the answer, or null once it has shown, at where,
// why there is none.
async function send(where, method, path, body) {
  if (s.busy.has(where)) return null;
  s.busy.add(where);
  delete s.errors[where];
  draw();
  try {
    const headers = { ...(s.token && { [tokenHeader]: s.token }), ...(body && { 'Content-Type': 'application/json' }) };
    const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
    if (answer.ok) return answer;
    const why = await reason(answer);
    s.errors[where] = [why];
    if (answer.status === 401) {
      forgetToken();
      s.errors[where] = text.parts('noPermission', { why, command: 'edgehubctl web' });
    }
  } catch {
    s.errors[where] = [text.t('noAnswer')];
  } finally {
    s.busy.delete(where);
    draw();
  }
  return null;
}

// reason is the line of an error, or of a Status.
async function reason(answer) {
  const line = (await answer.text()).trim();
  try {
    return JSON.parse(line).message || line;
  } catch {
    return line.slice(0, 500) || `${answer.status} ${answer.statusText}`;
  }
}

function forgetToken() {
  s.token = null;
  remember('token', null);
}

const pod = (app, action) => `${api}namespaces/${encodeURIComponent(app.namespace)}/pods/${encodeURIComponent(app.pod)}/${action}`;
const query = (values) => (Object.keys(values).length ? `?${new URLSearchParams(values)}` : '');

let asked = 0; // dialogs

const act = {
  pull: (app) => send(keyOf(app), 'POST', pod(app, 'imagepull')),
  cancelPull: (app) => send(keyOf(app), 'DELETE', pod(app, 'imagepull')),
  endHold: (app) => send(keyOf(app), 'DELETE', pod(app, 'hold')),
  cancelUpgrade: (app, where) => send(where, 'DELETE', pod(app, 'upgrade')).then(askUpgrades),

  async upgrade(app, values = {}, where = keyOf(app)) {
    const answer = await send(where, 'POST', pod(app, 'upgrade') + query(values));
    if (answer?.status === 200 && s.node.online) { // otherwise it waits, or is in place, which the hub shows
      begin(app);
      tell(app, 'replacing');
      draw();
    }
    return answer;
  },

  ask(kind, app, to) {
    s.dialog = { kind, app, to, id: `dialog ${++asked}` };
    draw();
  },
  // What closes a dialog may come late, when the next one is open.
  closeDialog(dialog) {
    if (s.dialog !== dialog) return;
    delete s.errors.dialog;
    document.querySelector('dialog')?.close(); // it returns the focus to where it was, if that is still there
    if (document.activeElement.matches('body, dialog *')) document.getElementById(`app-${keyOf(dialog.app)}`)?.closest('article')?.focus();
    s.dialog = null;
    draw();
  },
  async submit(dialog, form) {
    const { kind, app, to } = dialog;
    const post = (action, values) => send('dialog', 'POST', pod(app, action) + query(values));
    const upgrade = (values) => act.upgrade(app, values, 'dialog');
    const answer = await {
      without: upgrade,
      inPlace: upgrade,
      later: () => upgrade(form.get('when') === 'at' ? { at: moment(form.get('at')) } : windowOf(form)),
      hold: () => post('hold', { for: form.get('for'), ...(form.get('reason').trim() && { reason: form.get('reason').trim() }) }),
      rollback: () => post('rollback', to.revision ? { revision: to.revision } : {}),
    }[kind]();
    if (answer) act.closeDialog(dialog);
  },

  async toggle(app, key, open) {
    if (!open) {
      delete s.histories[key];
      return;
    }
    s.histories[key] ??= {};
    try {
      const answer = await fetch(pod(app, 'history'));
      s.histories[key] = answer.ok ? { items: (await answer.json()).items ?? [] } : { error: await reason(answer) };
    } catch {
      s.histories[key] = { error: text.t('noAnswer') };
    }
    draw();
  },

  async bundle() {
    const answer = await send('bundle', 'GET', `${api}bundle`);
    if (!answer) return;
    const name = /filename="?([\w.-]+)/.exec(answer.headers.get('Content-Disposition') ?? '')?.[1];
    const link = document.createElement('a');
    link.href = URL.createObjectURL(await answer.blob());
    link.download = name ?? `edgehub-${s.node.node}.tar.gz`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60e3);
  },

  switchLanguage() {
    text.choose(text.current() === 'zh' ? 'en' : 'zh');
    remember('language', text.current());
    draw();
  },
  chooseTheme(theme) {
    s.theme = theme;
    remember('theme', theme);
    document.documentElement.dataset.theme = theme;
    draw();
  },
};

const windowOf = (form) => ({ window: `${form.get('from')}-${form.get('to')}`, ...(form.get('tz') && { tz: form.get('tz') }) });

// moment is a local date and time as RFC 3339; what is none, the hub refuses.
function moment(local) {
  const date = new Date(local);
  return Number.isNaN(date.getTime()) ? local : date.toISOString().replace(/\.\d+/, '');
}

// signIn exchanges the one-time code of a link for a token. The code leaves the address bar at once.
async function signIn() {
  const code = new URLSearchParams(location.hash.slice(1)).get('code');
  if (!code) return;
  history.replaceState(null, '', location.pathname);
  const answer = await send('token', 'POST', `${api}web/tokens`, { code });
  if (answer) {
    const token = await answer.json();
    const left = Date.parse(token.expires) - Date.parse(answer.headers.get('Date')); // by the node's clock
    remember('token', { token: token.token, expires: new Date(Date.now() + left) });
    s.token = token.token;
    say(text.t('signedIn'));
  } else if (s.errors.token) {
    s.errors.token = text.parts('badCode', { why: s.errors.token.join(''), command: 'edgehubctl web' });
    recallAll(); // a token from before is still good
  }
  draw();
}

recallAll();
drawNow();
listen();
signIn();
setInterval(checkHub, 5000);
addEventListener('hashchange', signIn);
addEventListener('storage', () => { recallAll(); draw(); });
document.addEventListener('visibilitychange', watchTab);
