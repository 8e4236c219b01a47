// A view describes elements with h, and patch makes the document match. Elements stay as they are where
// they can, so that focus, scroll position and what somebody is typing survive each update. Text only ever
// becomes text nodes and attributes: what comes from the API is never parsed as HTML.

// h describes an element. Functions in props are event handlers; true and false set and remove an attribute;
// a name with a dot in front is a property. Elements with the same key are the same element.
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: flat(children) };
}

const flat = (nodes) => nodes.flat(Infinity).filter((n) => n || n === 0);

// render makes root's children match nodes. If the focused element goes away, its nearest container with
// tabindex gets the focus.
export function render(root, nodes) {
  const focused = document.activeElement;
  const around = [];
  for (let el = focused?.parentElement; el; el = el.parentElement) {
    if (el.hasAttribute('tabindex')) around.push(el);
  }
  patch(root, flat(nodes));
  if (!focused || focused === document.body || document.activeElement === focused) return;
  if (document.activeElement !== document.body) return;
  const next = [focused, ...around].find((el) => el.isConnected);
  next?.focus({ preventScroll: true });
}

function patch(parent, nodes) {
  const keys = new Set(nodes.map((n) => n.props?.key).filter(Boolean));
  const kept = new Map();
  for (const el of [...parent.childNodes]) {
    if (!el.key) continue;
    if (keys.has(el.key)) kept.set(el.key, el);
    else el.remove();
  }
  let at = parent.firstChild;
  for (const node of nodes) {
    const el = match(node, at, kept);
    if (el === at) at = at.nextSibling;
    else parent.insertBefore(el, at);
    if (node.tag) update(el, node);
    else if (el.data !== String(node)) el.data = String(node);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// match returns the element that becomes node: the one with its key, or the one in its place.
function match(node, at, kept) {
  if (!node.tag) return at?.nodeType === Node.TEXT_NODE ? at : document.createTextNode('');
  if (node.props.key) {
    const el = kept.get(node.props.key);
    if (el?.localName === node.tag) return el;
  } else if (at && !at.key && at.localName === node.tag) {
    return at;
  }
  const el = document.createElement(node.tag);
  el.key = node.props.key;
  return el;
}

function update(el, { props, children }) {
  const before = el.props ?? {};
  for (const name of Object.keys({ ...before, ...props })) {
    if (name !== 'key' && before[name] !== props[name]) set(el, name, props[name]);
  }
  el.props = props;
  patch(el, children);
  // A select has its options only now.
  for (const name of Object.keys(props)) {
    if (name[0] === '.' && el[name.slice(1)] !== props[name]) el[name.slice(1)] = props[name];
  }
}

function set(el, name, value) {
  if (name[0] === '.') return;
  if (name.startsWith('on')) el[name] = value ?? null;
  else if (value === undefined || value === null || value === false) el.removeAttribute(name);
  else el.setAttribute(name, value === true ? '' : value);
}
