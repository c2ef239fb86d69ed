// The page of functions: asks /system/status every second, with the key of the link.
const find = (id) => document.getElementById(id);
const STORED = "gpuferry-functions-key";
let before = null; // totals by function and when, for rates

// The key comes behind the # of the link, which browsers send to nobody, and leaves the address at once.
if (location.hash.length > 1) {
  sessionStorage.setItem(STORED, location.hash.slice(1));
  history.replaceState(null, "", "/");
}

const bytes = (size) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; size >= 1024 && unit < 4; unit++) size /= 1024;
  return `${size >= 100 || unit === 0 ? size.toFixed(0) : size.toFixed(1)} ${units[unit]}`;
};
const time = (seconds) => (seconds < 1 ? `${(1000 * seconds).toFixed(1)} ms` : `${seconds.toFixed(1)} s`);

// Whose replicas these are, with how many of each.
const names = (replicas) => {
  const counts = new Map();
  for (const one of replicas) counts.set(one.name, (counts.get(one.name) ?? 0) + 1);
  return [...counts].map(([name, many]) => (many > 1 ? `${name} ×${many}` : name)).join(", ");
};

// Names and states only ever become text.
function fill(body, rows) {
  body.replaceChildren(
    ...rows.map((cells) => {
      const row = document.createElement("tr");
      for (const cell of cells) {
        const made = document.createElement("td");
        made.textContent = cell;
        row.append(made);
      }
      return row;
    }),
  );
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
  fill(
    find("functions"),
    functions.map((each) => [
      each.name,
      each.waiting,
      each.running,
      `${each.replicas.length} of ${each.least}..${each.most}`,
      rate(each.name),
      each.invocations.failed,
      each.invocations.cold,
      each.mean_seconds ? time(each.mean_seconds) : "",
      each.gpu_seconds ? time(each.gpu_seconds) : "",
      each.gpu_memory ? bytes(each.gpu_memory) : "",
    ]),
  );
  fill(
    find("replicas"),
    replicas.map((one) => [
      one.replica,
      one.name,
      one.state,
      one.pid || "",
      one.revision,
      time(one.age_seconds),
      bytes(one.memory),
      one.gpu === undefined ? "" : `${one.gpu}${one.resident ? "" : ", its memory away"}`,
    ]),
  );
  find("cards").hidden = server.gpus.length === 0;
  fill(
    find("gpus"),
    server.gpus.map((card) => {
      const here = replicas.filter((one) => one.gpu === card.gpu);
      const [there, away] = [here.filter((one) => one.resident), here.filter((one) => !one.resident)];
      return [
        card.gpu,
        bytes(card.memory),
        there.reduce((sum, one) => sum + one.running, 0),
        names(there),
        names(away),
      ];
    }),
  );
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
