// The page's words in English and Chinese, and how it writes times, sizes and images.

const words = {
  loading: ['Asking the hub …', '正在询问 hub …'],
  skip: ['To the apps', '跳到应用'],
  language: ['中文', 'English'],
  languageLabel: ['切换到中文', 'Switch to English'],
  theme: ['Theme', '主题'],
  auto: ['Auto', '自动'],
  light: ['Light', '浅色'],
  dark: ['Dark', '深色'],

  missing: ['{app} has not been running since {when}: {why}', '{app} 自 {when} 起未运行：{why}'],
  online: ['Connected to the cloud since {when}', '自 {when} 起已连接云端'],
  offline: ['Offline since {when}. Apps go on; what needs the cloud waits.', '自 {when} 起离线。应用继续运行，需要云端的操作会等待。'],
  refused: ['This page is not kept up to date: {why}', '此页面未能更新：{why}'],
  stale: ['The hub does not answer since {when}. This is what it reported last.', '自 {when} 起 hub 没有响应。以下为最后一次获得的信息。'],
  notReady: ['The hub cannot serve the node: {why}', 'hub 无法为节点提供服务：{why}'],
  readOnly: ['This page is read-only: to make changes, run {command} on the node and open the link that it prints.', '此页面为只读：如需更改，请在节点上运行 {command}，并打开它输出的链接。'],
  badCode: ['The link could not be used: {why} – open it once more, or run {command} on the node for a new one.', '无法使用该链接：{why} – 请再次打开它，或在节点上运行 {command} 获取新链接。'],
  signedIn: ['You can make changes now.', '现在可以进行更改。'],

  apps: ['Apps', '应用'],
  others: ['Other pods', '其他 Pod'],
  noApps: ['No pods on this node.', '此节点上没有 Pod。'],
  running: ['Running', '运行中'],
  starting: ['Not ready', '未就绪'],
  stopping: ['Stopping', '正在停止'],
  goingBack: ['Going back', '正在回退'],
  replacing: ['Upgrading', '正在升级'],
  newStarting: ['The old version has stopped, and the new one starts.', '旧版本已停止，新版本正在启动。'],
  upgraded: ['Upgraded: the new version runs since {when}.', '已升级：新版本自 {when} 起运行。'],
  replaceSlow: ['The new version does not run yet, {n} min after the upgrade began. If it stays so, send the support bundle below to the admin.', '升级开始 {n} 分钟后，新版本仍未运行。如持续如此，请将下方的支持包发给管理员。'],

  update: ['Update ready', '有可用更新'],
  download: ['{size} to download', '需下载 {size}'],
  downloadUnknown: ['Not downloaded yet', '尚未下载'],
  here: ['The images are here', '镜像已就绪'],
  hereFor: ['The images are here: about {n} s of interruption', '镜像已就绪：预计中断约 {n} 秒'],
  pulling: ['Downloading: {done} of {total}', '正在下载：{done} / {total}'],
  pullingUnknown: ['Downloading: {done}', '正在下载：{done}'],
  pullQueued: ['The download waits for its turn', '下载正在排队'],
  pullFailed: ['Download failed ({reason}): {error}', '下载失败（{reason}）：{error}'],
  retryAt: ['Next attempt at {when}.', '下次尝试：{when}。'],
  noRetry: ['It is not tried again by itself: once the cause is removed, choose “Try again”.', '不会自动重试：排除原因后，请选择“重试”。'],
  help: ['What to do: {text}', '处理方法：{text}'],
  helpUnauthorized: ['the registry refuses the credentials; the admin renews the pull secret.', '镜像仓库拒绝了凭据；请管理员更新拉取密钥。'],
  helpNotFound: ['this image does not exist in the registry; the admin publishes it or corrects its name.', '镜像仓库中没有该镜像；请管理员发布镜像或更正名称。'],
  helpNoSpace: ['make room on the disk of the images, then try again.', '请清理镜像所在磁盘，然后重试。'],
  helpRegistry: ['check the node’s connection to the registry; it goes on where it stopped.', '请检查节点到镜像仓库的连接；下载会从中断处继续。'],
  helpUntrusted: ['the admin has the node trust the certificate of the registry.', '请管理员让节点信任镜像仓库的证书。'],
  helpContainerd: ['see systemctl status containerd on the node.', '请检查节点上的 containerd：systemctl status containerd。'],
  helpOther: ['if it fails again, send the support bundle below to the admin.', '若再次失败，请将下方的支持包发给管理员。'],
  pull: ['Download', '下载'],
  cancelPull: ['Cancel download', '取消下载'],
  retry: ['Try again', '重试'],
  blocked: ['It cannot be upgraded now: {why}', '现在无法升级：{why}'],

  upgradeNow: ['Upgrade now', '立即升级'],
  upgradeQueued: ['Upgrade when the cloud is back', '云端恢复后升级'],
  upgradeWithout: ['Upgrade without downloading first …', '不预先下载直接升级 …'],
  upgradeInPlace: ['Upgrade now, offline …', '立即离线升级 …'],
  later: ['Later …', '稍后 …'],
  notNow: ['Not now …', '暂不 …'],
  rollback: ['Go back …', '回退 …'],
  cancel: ['Cancel', '取消'],
  endHold: ['End the hold', '结束搁置'],
  held: ['On hold until {when}', '搁置至 {when}'],
  heldWhy: ['On hold until {when}: {why}', '搁置至 {when}：{why}'],
  heldLocally: ['the cloud does not know yet', '云端尚未知晓'],

  withoutTitle: ['Upgrade {app} without downloading first?', '不预先下载，直接升级 {app}？'],
  withoutText: ['The app is down until its images are downloaded and the new version has started.', '在镜像下载完成且新版本启动之前，应用将不可用。'],
  inPlaceTitle: ['Upgrade {app} now, without the cloud?', '现在离线升级 {app}？'],
  inPlaceText: ['It takes effect at once: containers restart. The earlier version returns if the new one does not stay Ready.', '立即生效：容器将重启。若新版本未能保持就绪，将恢复较早版本。'],
  laterTitle: ['When to upgrade {app}?', '何时升级 {app}？'],
  tonight: ['Tonight, or in the next night in which it can', '今晚，或下一个可行的夜间'],
  from: ['from', '从'],
  to: ['to', '到'],
  nodeClock: ['the node’s clock, which shows {when}', '节点时钟（现在是 {when}）'],
  whoseClock: ['by', '依据：'],
  browserClock: ['the clock of this browser, {zone}', '此浏览器的时钟（{zone}）'],
  atTime: ['At a time', '指定时间'],
  when: ['date and time', '日期和时间'],
  schedule: ['Schedule', '安排'],
  holdTitle: ['Not now: keep {app} as it is', '暂不升级：保持 {app} 不变'],
  holdText: ['Until then, neither this page nor the cloud upgrades it.', '在此之前，此页面和云端都不会升级它。'],
  holdFor: ['For how long', '时长'],
  hours: ['{n} h', '{n} 小时'],
  reason: ['Reason, for the admin (optional)', '原因，供管理员参考（可选）'],
  hold: ['Put on hold', '搁置'],
  rollbackTitle: ['Take {app} back to {version}?', '将 {app} 回退到 {version}？'],
  rollbackText: ['The app is interrupted while the earlier version starts. Other nodes are not affected.', '较早版本启动期间应用会中断。其他节点不受影响。'],
  rollbackOffline: ['The cloud is away: it begins when the cloud is back.', '云端不可用：云端恢复后开始。'],
  goBack: ['Go back', '回退'],
  close: ['Close', '关闭'],

  queue: ['Upgrades', '升级记录'],
  emptyQueue: ['No upgrade waits.', '没有等待中的升级。'],
  Upgrade: ['Upgrade', '升级'],
  Rollback: ['Rollback', '回退'],
  WaitingForCloud: ['waits for the cloud', '等待云端连接'],
  Scheduled: ['begins {when}', '将于 {when} 开始'],
  Held: ['waits: on hold', '等待：已搁置'],
  InProgress: ['in progress', '进行中'],
  Done: ['done {when}', '已完成 {when}'],
  Dropped: ['dropped', '已放弃'],
  Withdrawn: ['cancelled', '已取消'],
  InProbation: ['Upgrading offline, in place; whether it works is known by {when}', '正在离线就地升级；{when} 前可知是否正常'],
  Passed: ['Upgraded offline, in place; the cloud will be told', '已离线就地升级；将告知云端'],
  Reconciled: ['Upgraded offline, in place; the cloud has followed', '已离线就地升级；云端已同步'],
  Undoing: ['Offline upgrade: being undone', '离线升级：正在撤销'],
  Undone: ['Offline upgrade: undone', '离线升级：已撤销'],

  details: ['Details and history', '详情与历史'],
  detailsOnly: ['Details', '详情'],
  pod: ['Pod', 'Pod'],
  images: ['Images', '镜像'],
  started: ['Started', '启动时间'],
  restarts: ['Restarts', '重启次数'],
  history: ['Versions on this node', '此节点上的版本'],
  noHistory: ['Nothing is recorded yet.', '尚无记录。'],
  current: ['current', '当前'],
  sinceWhen: ['since {when}', '自 {when}'],
  notRetained: ['not on the node any more', '已不在节点上'],

  node: ['Node', '节点'],
  diskHub: ['Disk of the hub’s cache', 'hub 缓存磁盘'],
  diskImages: ['Disk of the images', '镜像磁盘'],
  diskBoth: ['Disk of images and cache', '镜像与缓存磁盘'],
  disk: ['Disk', '磁盘'],
  free: ['{free} free of {total}', '可用 {free} / 共 {total}'],
  cache: ['Cache for offline times', '离线缓存'],
  cacheOK: ['{size} on disk, {n} views', '磁盘上 {size}，{n} 个视图'],
  certificates: ['Certificates', '证书'],
  certPods: ['For pods', '供 Pod 使用'],
  certAPI: ['This API', '此 API'],
  expires: ['until {when}', '有效期至 {when}'],
  expired: ['expired {when}', '已于 {when} 过期'],
  month: ['Data this month', '本月流量'],
  traffic: ['{received} received, {sent} sent', '接收 {received}，发送 {sent}'],
  trafficSince: ['with the cloud, since {when}', '与云端之间，自 {when}'],
  clock: ['Clock of the node', '节点时钟'],
  clockOff: ['It differs from the clock of this browser by {n} min. Certificates, schedules and holds go by it: set it, or use NTP.', '与此浏览器的时钟相差 {n} 分钟。证书、定时升级和搁置以它为准：请校准，或使用 NTP。'],
  version: ['Version of the hub', 'hub 版本'],
  support: ['Support', '支持'],
  bundle: ['Download support bundle', '下载支持包'],
  bundleText: ['State, logs and metrics for the admin; no secrets.', '供管理员使用的状态、日志和指标；不含机密信息。'],

  events: ['Events', '事件'],
  noEvents: ['No events so far.', '暂无事件。'],
  more: ['{n} more', '另外 {n} 条'],
  Warning: ['Warning', '警告'],
  times: ['{n} times', '{n} 次'],

  noAnswer: ['The hub does not answer. Nothing may have been done.', 'hub 没有响应。操作可能未执行。'],
  noPermission: ['{why} – run {command} on the node for a new link.', '{why} – 请在节点上运行 {command} 获取新链接。'],
  begins: ['the download begins', '开始下载'],
  failed: ['the download failed', '下载失败'],
  sayReleased: ['{app} is not on hold any more', '{app} 不再搁置'],
  say: ['{app}: {state}', '{app}：{state}'],
};

let language = 'en';

// choose sets in which language the words are.
const languages = ['en', 'zh'];
export function choose(name) {
  language = languages.includes(name) ? name : 'en';
  document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en';
}

// preferred returns the first language of the browser that the page has.
export function preferred() {
  const wanted = (navigator.languages ?? [navigator.language]).map((l) => l.toLowerCase().split('-')[0]);
  return wanted.find((l) => languages.includes(l)) ?? 'en';
}

export const current = () => language;

// t returns words with each {name} replaced. parts returns them as a list, where values may be elements.
export function t(name, values) {
  return parts(name, values).join('');
}

export function parts(name, values = {}) {
  const text = words[name][languages.indexOf(language)];
  return text.split(/\{(\w+)\}/).map((part, i) => (i % 2 ? values[part] ?? '' : part));
}

// known reports whether there are words for name: names of states may be newer than the page.
export const known = (name) => Object.hasOwn(words, name);

// Dates follow the browser where it speaks the page's language.
function locale() {
  const own = (navigator.languages ?? []).find((l) => l.toLowerCase().startsWith(language));
  return own ?? (language === 'zh' ? 'zh-CN' : 'en-GB');
}

// isTime reports whether s is a time; Go's zero time is none.
const isTime = (s) => Boolean(s) && !s.startsWith('0001-') && !Number.isNaN(Date.parse(s));

// time is the time of day today, and otherwise also the date.
export function time(s) {
  if (!isTime(s)) return '–';
  const date = new Date(s);
  const options = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' };
  if (date.toDateString() !== new Date().toDateString()) Object.assign(options, { month: 'short', day: 'numeric' });
  if (date.getFullYear() !== new Date().getFullYear()) options.year = 'numeric';
  return date.toLocaleString(locale(), options);
}

export function day(s) {
  return isTime(s) ? new Date(s).toLocaleDateString(locale(), { year: 'numeric', month: 'short', day: 'numeric' }) : '–';
}

// offset is by how many minutes a time's zone is ahead of UTC.
export function offset(s) {
  const [, sign, hours, minutes] = /([+-])(\d\d):(\d\d)$/.exec(s) ?? ['', '', 0, 0];
  return Number(`${sign}${hours * 60 + Number(minutes)}`);
}

// local is a time as the clock that it comes from shows it.
export const local = (s) => `${s.slice(0, 16).replace('T', ' ')} (UTC${/[+-]\d\d:\d\d$/.exec(s)?.[0] ?? ''})`;

export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (n = Number(n) || 0; n >= 1024 && unit < units.length - 1; unit++) n /= 1024;
  return n.toLocaleString(locale(), { maximumFractionDigits: n < 10 && unit > 1 ? 1 : 0 }) + ' ' + units[unit];
}

export const number = (n) => Number(n).toLocaleString(locale());

// image shortens registry.example/team/app:v1@sha256:0123… to app:v1, and without a tag to app@0123….
export function image(reference) {
  const [name, digest] = String(reference).split('@');
  const short = name.slice(name.lastIndexOf('/') + 1);
  return short.includes(':') || !digest ? short : `${short}@${digest.replace(/^\w+:/, '').slice(0, 12)}`;
}

export function images(references) {
  const list = references ?? [];
  return list.slice(0, 2).map(image).join(', ') + (list.length > 2 ? ` +${list.length - 2}` : '');
}
