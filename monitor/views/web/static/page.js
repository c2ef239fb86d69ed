// The live page: GET /api/events sends `history` once, then `status` every second.
import { chart, meter, lane, pointed } from "./charts.js";
import { bytes, age, rate, percent } from "./units.js";

const WINDOW = 600; // seconds in the charts
const SILENCE = 4000; // ms without a word: then the monitor is gone
const RETRY = 2000; // ms

const find = (id) => document.getElementById(id);
const history = { times: [], devices: {} };
let before = null; // the status before, for rates
let heard = 0; // when the monitor last said something
let source = null;

// What programs call themselves is theirs to choose: it only ever becomes text.
function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== null));
  return made;
}

// Elements that stay are kept, so that a selection or the focus survives the next second.
function reconcile(parent, items, key, create, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, index) => {
    const name = String(key(item));
    let child = old.get(name);
    old.delete(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
    update(child, item);
  });
  for (const gone of old.values()) gone.remove();
}

const setText = (target, text) => {
  if (target.textContent !== text) target.textContent = text;
};
const setClass = (target, name) => {
  if (target.className !== name) target.className = name;
};
const uuidText = ({ uuid: hex, instance }) =>
  hex ? `${instance ? "MIG" : "GPU"}-${[hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-")}` : "";

// -- the parts of the page

const GPU_STATES = {
  up: ["good", "Up"],
  starting: ["warn", "Starting"],
  failing: ["bad", "Failing"],
  lost: ["bad", "Lost"],
};

function measure(name) {
  const part = element("div", `measure ${name}`);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "chart");
  part.append(element("div", "measure-head", element("span", "label"), element("span", "value")), svg);
  pointed(svg, () => before && showGpus(before));
  return part;
}

function createGpu() {
  return element(
    "article",
    "gpu",
    element("div", "gpu-head", element("div", "names", element("h3"), element("p", "gpu-id")), element("p", "pill")),
    measure("utilization"),
    measure("memory"),
    measure("residency"),
    measure("shares"),
    element("div", "axis", element("span", "", "10 min ago"), element("span", "", "5 min"), element("span", "", "now")),
    element("div", "gpu-foot"),
  );
}

// While the pointer is on a chart, the figure is that of the moment it points at.
function updateMeasure(card, name, label, value, write, drawing) {
  const part = card.querySelector(`.measure.${name}`);
  const at = chart(part.querySelector("svg"), { times: history.times, window: WINDOW, ...drawing });
  const then = at === null ? null : drawing.lines[0].values[at];
  part.querySelector(".label").replaceChildren(...label);
  part.querySelector(".value").replaceChildren(
    ...(at === null
      ? value
      : [
          element("strong", "", then === null || then === undefined ? "–" : write(then)),
          ` ${age(history.times.at(-1) - history.times[at])} ago`,
        ]),
  );
}

const sum = (values) => values.reduce((whole, value) => whole + (value ?? 0), 0);

// Lines that lie on each other: the outermost first, so that those below it are drawn over its area.
function stacked(layers) {
  let below = [];
  const lines = layers.map(({ name, values }) => {
    below = values.map((value, moment) => (value === null || value === undefined ? null : value + (below[moment] ?? 0)));
    return { name, area: true, values: below };
  });
  return lines.reverse();
}

// A drawing that there is not always.
function present(card, name, is) {
  const part = card.querySelector(`.measure.${name}`);
  part.hidden = !is;
  part.querySelector("svg").toggleAttribute("aria-hidden", !is);
  return is;
}

const swatch = (name, text) => element("span", `swatch ${name}`, text);

// Where sessions' memory is, where some of it is or was elsewhere.
function updateResidency(card, device, series) {
  const places = [
    ["resident", "here", "memory_resident"],
    ["host", "in host memory", "memory_in_host"],
    ["disk", "on disk", "memory_on_disk"],
  ];
  const elsewhere = places.slice(1).some(([, , name]) => device[name] || (series[name] ?? []).some(Boolean));
  if (!present(card, "residency", elsewhere)) return;
  const now = places.map(([, , name]) => device[name]);
  const whole = places.reduce((most, [, , name]) => most + Math.max(0, ...(series[name] ?? [])), 0);
  updateMeasure(
    card,
    "residency",
    ["Sessions' memory ", ...places.map(([place, words]) => swatch(place, words))],
    [element("strong", "", bytes(sum(now.slice(1)))), " elsewhere"],
    bytes,
    {
      label: `Memory of the sessions of GPU ${device.ordinal}: ${places.map(([, words], index) => `${bytes(now[index])} ${words}`).join(", ")}`,
      most: Math.max(whole, device.memory_total, 1),
      lines: stacked(places.map(([place, , name]) => ({ name: place, values: series[name] ?? [] }))),
    },
  );
}

const COLOURS = 6;
const LAYERS = 12; // sessions that are drawn apart; the others are one

function layersOf(moments) {
  const had = new Map();
  for (const moment of moments) for (const [session, share] of moment ?? []) had.set(session, (had.get(session) ?? 0) + share);
  const sessions = [...had.keys()].sort((one, other) => had.get(other) - had.get(one));
  const apart = sessions.slice(0, LAYERS).sort((one, other) => one - other);
  const layers = apart.map((session) => ({
    name: colourOf(session),
    values: moments.map((moment) => moment && (moment.get(session) ?? 0)),
  }));
  const drawn = new Set(apart);
  const others = (moment) => sum([...moment].filter(([session]) => !drawn.has(session)).map(([, share]) => share));
  layers.push({ name: "share-others", values: moments.map((moment) => moment && others(moment)) });
  return layers;
}

const colourOf = (session) => `share-${session % COLOURS}`;
const pairs = (flat) => new Map(flat.flatMap((value, index) => (index % 2 ? [] : [[value, flat[index + 1] / 1000]])));

// What sessions have had of the GPU's time; each keeps its colour.
function updateShares(card, device, series) {
  if (!present(card, "shares", Boolean(device.turns))) return;
  const moments = (series.shares ?? []).map((flat) => flat && pairs(flat));
  const { shares, tokens } = device.turns;
  const said = shares.map(({ session, share }) => `session ${session} ${percent(share)}`);
  updateMeasure(
    card,
    "shares",
    ["Shares ", ...shares.map(({ session }, index) => swatch(colourOf(session), said[index]))],
    [element("strong", "", percent(sum(shares.map(({ share }) => share))))],
    percent,
    {
      label: `Shares of GPU ${device.ordinal}: ${said.join(", ") || "nobody has had any"}`,
      most: tokens || 1,
      lines: stacked(layersOf(moments)),
    },
  );
}

function updateGpu(card, device) {
  const [mood, word] = GPU_STATES[device.state] ?? ["", device.state];
  card.dataset.state = device.state;
  card.querySelector("h3").replaceChildren(element("b", "", `${device.ordinal} `), device.name || "starting …");
  const id = card.querySelector(".gpu-id");
  setText(id, uuidText(device));
  id.title = [uuidText(device), device.pci_bus_id].filter(Boolean).join(" · ");
  setClass(card.querySelector(".pill"), `pill ${mood}`);
  setText(card.querySelector(".pill"), word);

  const series = history.devices[device.ordinal] ?? { utilization: [], memory_used: [], memory_granted: [] };
  const busy = device.utilization === null ? "–" : percent(device.utilization);
  updateMeasure(card, "utilization", ["Utilisation"], [element("strong", "", busy)], percent, {
    label: `Utilisation of GPU ${device.ordinal}: ${busy} now`,
    most: 1,
    lines: [{ values: series.utilization, name: "utilization", area: true }],
  });
  const used = device.memory_used === null ? "–" : bytes(device.memory_used);
  const granted = bytes(device.memory_granted);
  updateMeasure(
    card,
    "memory",
    ["Memory ", element("span", "key", `granted ${granted}`)],
    [element("strong", "", used), ` of ${bytes(device.memory_total)}`],
    bytes,
    {
      label: `Memory of GPU ${device.ordinal}: ${used} used, ${granted} granted, of ${bytes(device.memory_total)}`,
      most: device.memory_total || 1,
      lines: [
        { values: series.memory_used, name: "memory", area: true },
        { values: series.memory_granted, name: "granted" },
      ],
    },
  );
  updateResidency(card, device, series);
  updateShares(card, device, series);
  const facts = [`${device.pool_idle} of ${device.pool_size} API servers idle`];
  if (device.time_promised) facts.push(`${percent(device.time_promised / 1000)} of its time promised`);
  if (device.temperature !== null) facts.push(`${Math.round(device.temperature)} °C`);
  if (device.power !== null) facts.push(`${Math.round(device.power)} W`);
  if (device.simulated) facts.push("simulated");
  card.querySelector(".gpu-foot").replaceChildren(...facts.map((fact) => element("span", "", fact)));
}

function showGpus(status) {
  reconcile(find("gpus"), status.devices, (one) => one.ordinal, createGpu, updateGpu);
}

// What it was promised, or asks for, of a GPU beside memory.
function portion(one) {
  const said = one.portion;
  if (!said) return [];
  const limit = said.limit && said.limit < 1000;
  return [
    said.request && `request ${said.request / 1000}`,
    limit && `limit ${said.limit / 1000}`,
    said.affinity && `affinity ${said.affinity}`,
    said.anti_affinity && `anti-affinity ${said.anti_affinity}`,
    said.exclusion && `exclusive ${said.exclusion}`,
  ];
}

const turnOf = (turns) => `${percent(turns.share)} of the GPU${turns.working ? ", works" : turns.waits_seconds ? ", waits" : ""}`;

const who = (one) => {
  const more = [one.disconnected && "disconnected", one.turns && turnOf(one.turns), one.function && `function ${one.function}`, one.tenant && `tenant ${one.tenant}`, `pid ${one.guest_pid}`];
  if (one.peer && one.peer !== "unix") more.push(`from ${one.peer}`);
  more.push(...portion(one), one.reason && `waits: ${one.reason}`);
  return [one.program || "unnamed", element("small", "", more.filter(Boolean).join(" · "))];
};

function cell(row, className, label) {
  const made = element("td", className);
  if (label) made.dataset.label = label;
  row.append(made);
}

const elsewhere = { leaving: "leaving", host: "in host memory", disk: "on disk", returning: "returning" };

function whereabouts(session) {
  if (session.state === "suspended") return "in a file";
  if (session.state === "moved") return `→ ${session.where}`;
  const device = session.devices?.length ? session.devices.join(",") : String(session.device ?? "–");
  if (session.state === "migrating") return `${device} moving`;
  return elsewhere[session.residency] ? `${device} (${elsewhere[session.residency]})` : device;
}

function createSession() {
  const row = element("tr");
  cell(row, "who");
  cell(row, "", "GPU");
  cell(row, "memory-cell");
  for (const label of ["Calls/s", "In", "Out", "Busy", "Age"]) cell(row, "n", label);
  return row;
}

function updateSession(row, session, old, seconds) {
  const perSecond = (name) => (old && seconds > 0 ? Math.max(session[name] - old[name], 0) / seconds : 0);
  const cells = row.children;
  const text = who(session);
  if (cells[0].textContent !== text[0] + text[1].textContent) cells[0].replaceChildren(...text);
  setText(cells[1], whereabouts(session));
  cells[2].replaceChildren(
    `${bytes(session.memory_mapped)} of ${bytes(session.memory_quota)}`,
    meter(session.memory_mapped / (session.memory_quota || 1)),
  );
  setText(cells[3], rate(perSecond("calls_async") + perSecond("calls_sync")));
  setText(cells[4], `${bytes(perSecond("bytes_in"))}/s`);
  setText(cells[5], `${bytes(perSecond("bytes_out"))}/s`);
  setText(cells[6], percent(Math.min(perSecond("busy_seconds"), 1)));
  setText(cells[7], age(session.age_seconds));
}

function showSessions(status, seconds) {
  const old = new Map((before?.sessions ?? []).map((session) => [session.id, session]));
  reconcile(find("sessions").tBodies[0], status.sessions, (one) => one.id, createSession, (row, one) =>
    updateSession(row, one, old.get(one.id), seconds),
  );
}

function createWaiting() {
  const row = element("tr");
  cell(row, "", "Place");
  cell(row, "who");
  cell(row, "n", "Asks for");
  cell(row, "n", "Has waited");
  return row;
}

function updateWaiting(row, waiting) {
  const cells = row.children;
  setText(cells[0], String(waiting.place));
  const text = who(waiting);
  if (cells[1].textContent !== text[0] + text[1].textContent) cells[1].replaceChildren(...text);
  setText(cells[2], waiting.memory ? bytes(waiting.memory) : "default");
  setText(cells[3], age(waiting.waited_seconds));
}

const SERVER_STATES = { idle: "good", busy: "busy", starting: "warn", stopping: "warn" };

function createServer() {
  return element("li", "", element("p", "pill"), element("p", "name"), element("p", "more"));
}

function updateServer(item, server) {
  setClass(item.children[0], `pill ${SERVER_STATES[server.state] ?? ""}`);
  setText(item.children[0], server.session ? `session ${server.session}` : server.state);
  item.children[1].replaceChildren("GPU ", element("b", "", String(server.device)), ` · pid ${server.pid || "–"}`);
  setText(item.children[2], [server.rss ? bytes(server.rss) : null, age(server.age_seconds)].filter(Boolean).join(" · "));
}

function createMigration() {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  return element("div", "lane", element("p", "what"), svg, element("p", "n result"));
}

function updateMigration(row, migration) {
  const [what, svg, result] = row.children;
  setText(what, `session ${migration.session}: ${migration.source} → ${migration.target}`);
  const words = {
    done: bytes(migration.bytes) + (migration.downtime_seconds ? `, down ${age(migration.downtime_seconds)}` : ""),
    running: `${bytes(migration.bytes)} so far`,
    failed: `failed${migration.reason ? `: ${migration.reason}` : ""}`,
  };
  setText(result, words[migration.state] ?? migration.state);
  lane(svg, {
    label: `${what.textContent}, ${age(migration.started_seconds_ago)} ago, ${result.textContent}`,
    begin: migration.started_seconds_ago,
    length: migration.seconds,
    name: migration.state,
    window: WINDOW,
  });
}

function fact(name, value, more) {
  return { name, value, more };
}

function showFacts(status, seconds) {
  const total = (items, name) => items.reduce((sum, item) => sum + (item[name] ?? 0), 0);
  const calls = total(status.sessions, "calls_async") + total(status.sessions, "calls_sync");
  const old = new Map((before?.sessions ?? []).map((session) => [session.id, session]));
  const same = status.sessions.filter((session) => old.has(session.id));
  const earlier = same.map((session) => old.get(session.id));
  const more = ["calls_async", "calls_sync"].reduce((sum, name) => sum + total(same, name) - total(earlier, name), 0);
  const idle = status.servers.filter((server) => server.state === "idle").length;
  const info = status.monitor;
  const facts = [
    fact("Sessions", String(status.sessions.length), `${info.sessions_granted} since the start`),
    fact("Waiting", String(status.queue.length), `${info.sessions_refused} refused so far`),
    fact("API servers idle", String(idle), `of ${status.servers.length}`),
    fact("Memory granted", bytes(total(status.devices, "memory_granted")), `of ${bytes(total(status.devices, "memory_grantable"))}`),
    fact("Calls", `${rate(seconds > 0 ? more / seconds : 0)}/s`, `${calls.toLocaleString("en")} in running sessions`),
  ];
  const create = () => element("div", "", element("dt"), element("dd", "", element("span"), " ", element("small")));
  reconcile(find("facts"), facts, (one) => one.name, create, (item, one) => {
    setText(item.children[0], one.name);
    setText(item.children[1].children[0], one.value);
    setText(item.children[1].children[1], one.more);
  });
}

function notices(status) {
  const found = [];
  if (document.body.dataset.link === "gone") {
    const since = heard ? `It was last heard ${age((Date.now() - heard) / 1000)} ago; what you see is from then.` : "";
    found.push(["bad", "The monitor does not answer", `${since} This page connects again by itself. On its machine: gpuferry doctor`]);
  }
  if (!status) return found;
  if (status.monitor.draining)
    found.push([
      "warn",
      "This GPU server is drained",
      status.sessions.length
        ? `It takes no new sessions; ${status.sessions.length} that run may end.`
        : "It takes no new sessions, and none runs.",
    ]);
  for (const device of status.devices) {
    if (device.state === "lost")
      found.push(["bad", `GPU ${device.ordinal} is lost`, "The driver cannot reach it. Its sessions have ended or will; the others go on."]);
    if (device.state === "failing")
      found.push(["bad", `GPU ${device.ordinal} starts no API server`, device.problem || "They end as soon as they start: the monitor's log says why."]);
  }
  if (status.monitor.gpu_stats_problem && status.monitor.uptime_seconds > 10)
    found.push(["warn", "No figures of the devices", status.monitor.gpu_stats_problem]);
  return found;
}

function showNotices(status) {
  const create = () => element("div", "", element("p", "", element("strong"), element("span")));
  reconcile(find("notices"), notices(status), (one) => one[1], create, (item, [mood, title, text]) => {
    setClass(item, `notice ${mood}`);
    setText(item.querySelector("strong"), title);
    setText(item.querySelector("span"), text);
  });
}

function showLink(status) {
  const gone = document.body.dataset.link === "gone";
  const [mood, word] = gone
    ? ["bad", "Monitor gone"]
    : !status
      ? ["", "Connecting"]
      : status.monitor.draining
        ? ["warn", "Draining"]
        : ["good", "Live"];
  setClass(find("link"), `pill ${mood}`);
  setText(find("link"), word);
  document.title = `${gone ? "gone · " : ""}${status ? `${status.monitor.hostname} · ` : ""}gpuferry`;
}

const setCount = (name, count) => {
  setText(find(`${name}-count`), count ? String(count) : "");
  find(`${name}-empty`).hidden = count > 0;
  find(name).hidden = count === 0;
};

function show(status) {
  const info = status.monitor;
  const seconds = before ? info.uptime_seconds - before.monitor.uptime_seconds : 0;
  setText(find("where"), `${info.hostname} · version ${info.version} · up ${age(info.uptime_seconds)} · guests: ${info.listening.join(", ")}`);
  showFacts(status, seconds);
  showGpus(status);
  showSessions(status, seconds);
  const queue = status.queue.map((one, index) => ({ ...one, place: index + 1 }));
  reconcile(find("queue").tBodies[0], queue, (one) => one.session, createWaiting, updateWaiting);
  // Those that are about to be started have no process yet: several may be without a number.
  const servers = status.servers.map((one, index) => ({ ...one, key: one.pid || `starting ${index}` }));
  reconcile(find("servers"), servers, (one) => one.key, createServer, updateServer);
  const migrations = status.migrations.filter((one) => one.started_seconds_ago < WINDOW).reverse();
  reconcile(find("migrations"), migrations, (one) => one.id, createMigration, updateMigration);
  setCount("sessions", status.sessions.length);
  setCount("queue", queue.length);
  setCount("servers", status.servers.length);
  setCount("migrations", migrations.length);
  before = status;
  showLink(status);
  showNotices(status);
}

// -- the connection

function remember(point) {
  history.times.push(point.time);
  for (const [ordinal, values] of Object.entries(point.devices)) {
    history.devices[ordinal] ??= {};
    for (const [name, value] of Object.entries(values)) {
      const series = (history.devices[ordinal][name] ??= Array(history.times.length - 1).fill(null));
      series.push(value);
    }
  }
  const excess = history.times.length - WINDOW;
  if (excess <= 0) return;
  history.times.splice(0, excess);
  for (const device of Object.values(history.devices)) for (const series of Object.values(device)) series.splice(0, excess);
}

function hear(link) {
  heard = Date.now();
  document.body.dataset.link = link;
}

function connect() {
  source = new EventSource("/api/events");
  source.addEventListener("history", (event) => {
    const all = JSON.parse(event.data);
    Object.assign(history, all);
    before = null; // another monitor, perhaps: its counters are not comparable
    hear("live");
  });
  source.addEventListener("status", (event) => {
    const status = JSON.parse(event.data);
    hear("live");
    if (status.point) remember(status.point);
    show(status);
  });
  source.addEventListener("error", lost);
}

function lost() {
  document.body.dataset.link = "gone";
  showLink(before);
  showNotices(before);
  // The browser tries again by itself after a broken connection, but not after a refused one.
  if (source.readyState === EventSource.CLOSED) {
    source.close();
    setTimeout(connect, RETRY);
  }
}

setInterval(() => {
  if (document.body.dataset.link === "live" && Date.now() - heard > SILENCE) document.body.dataset.link = "gone";
  if (document.body.dataset.link === "gone") {
    showLink(before);
    showNotices(before);
  }
}, 1000);
connect();
