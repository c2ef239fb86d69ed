// The page of functions: asks /system/status every second, with the key of the link.
import { age, bytes } from "./units.js";

const find = (id) => document.getElementById(id);
const STORED = "gpuferry-functions-key";
const gpusOf = (one) => [one.gpu, ...(one.also ?? [])];
let before = null; // totals by function and when, for rates

// The key comes behind the # of the link, which browsers send to nobody, and leaves the address at once.
if (location.hash.length > 1) {
  sessionStorage.setItem(STORED, location.hash.slice(1));
  history.replaceState(null, "", "/");
}

const time = (seconds) => (seconds < 1 ? `${(1000 * seconds).toFixed(1)} ms` : `${seconds.toFixed(1)} s`);

// Whose replicas these are, with how many of each.
const names = (replicas) => {
  const counts = new Map();
  for (const one of replicas) counts.set(one.name, (counts.get(one.name) ?? 0) + 1);
  return [...counts].map(([name, many]) => (many > 1 ? `${name} ×${many}` : name)).join(", ");
};

function line(kind, texts) {
  const row = document.createElement("tr");
  for (const text of texts) {
    const cell = document.createElement(kind);
    cell.textContent = text; // names and states only ever become text
    if (kind === "th") cell.scope = "col";
    row.append(cell);
  }
  return row;
}

// A table with a row for each entry. `columns`: a heading, and what an entry has under it.
function fill(table, entries, columns) {
  const [head, body] = [document.createElement("thead"), document.createElement("tbody")];
  head.append(line("th", Object.keys(columns)));
  body.append(...entries.map((entry) => line("td", Object.values(columns).map((cell) => cell(entry)))));
  table.replaceChildren(head, body);
}

function say(text, kind) {
  find("link").textContent = text;
  find("link").className = `pill ${kind}`;
}

function show(status) {
  const { server, functions } = status;
  const limit = server.tokens ? `${server.tokens} at once` : "no limit at once";
  const facts = [location.host, `policy ${server.policy}, ${limit}`, `driver ${server.driver}`];
  find("where").textContent = facts.join(" · ");
  const replicas = functions.flatMap((each) => each.replicas.map((one) => ({ ...one, name: each.name })));
  const now = server.uptime_seconds;
  const totals = new Map(functions.map((each) => [each.name, each.invocations.ok + each.invocations.failed]));
  const rate = (name) =>
    before && before.totals.has(name) && now > before.now
      ? Math.max((totals.get(name) - before.totals.get(name)) / (now - before.now), 0).toFixed(1)
      : "";
  fill(find("functions"), functions, {
    Function: (each) => each.name,
    Waiting: (each) => each.waiting,
    Running: (each) => each.running,
    Replicas: (each) => `${each.replicas.length} of ${each.least}..${each.most}`,
    "Per second": (each) => rate(each.name),
    Failed: (each) => each.invocations.failed,
    "Cold starts": (each) => each.invocations.cold,
    Mean: (each) => (each.mean_seconds ? time(each.mean_seconds) : ""),
    "GPU time": (each) => (each.gpu_seconds ? time(each.gpu_seconds) : ""),
    "GPU memory": (each) => (each.gpu_memory ? bytes(each.gpu_memory) : ""),
  });
  fill(find("replicas"), replicas, {
    Replica: (one) => one.replica,
    Function: (one) => one.name,
    State: (one) => one.state,
    Process: (one) => one.pid || "",
    Revision: (one) => one.revision,
    Age: (one) => age(one.age_seconds),
    Memory: (one) => bytes(one.memory),
    GPU: (one) => {
      const gpus = one.gpu === undefined ? "" : gpusOf(one).join(" ");
      return gpus && !one.resident ? `${gpus}, its memory away` : gpus;
    },
  });
  find("cards").hidden = server.gpus.length === 0;
  const on = (card, resident) =>
    replicas.filter((one) => gpusOf(one).includes(card.gpu) && one.resident === resident);
  fill(find("gpus"), server.gpus, {
    GPU: (card) => card.gpu,
    Memory: (card) => bytes(card.memory),
    Running: (card) => on(card, true).reduce((sum, one) => sum + one.running, 0),
    Resident: (card) => names(on(card, true)),
    "Memory away": (card) => names(on(card, false)),
  });
  find("none").hidden = functions.length > 0;
  before = { now, totals };
}

async function look() {
  try {
    const key = sessionStorage.getItem(STORED) ?? "";
    const answer = await fetch("/system/status", { headers: { Authorization: `Bearer ${key}` } });
    find("ask").hidden = answer.status !== 401;
    if (answer.ok) {
      show(await answer.json());
      say("Live", "good");
    } else {
      say(answer.status === 401 ? "Key needed" : `Error ${answer.status}`, "warn");
    }
  } catch {
    say("No answer", "bad");
  }
  setTimeout(look, 1000);
}

find("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(STORED, find("key").value.trim());
});
look();
