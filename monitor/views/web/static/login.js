// The key comes behind the # of the link, which browsers send to nobody, and leaves the address at once.
const find = (id) => document.getElementById(id);

async function enter(key) {
  const answer = await fetch("/login", { method: "POST", headers: { Authorization: `Bearer ${key}` } });
  if (answer.ok) location.replace("/");
  else find("what").textContent = "That is not the key of this monitor: `gpuferry page` prints the link.";
}

find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  enter(find("key").value.trim());
});

const given = location.hash.slice(1);
history.replaceState(null, "", "/login");
if (given) enter(given);
