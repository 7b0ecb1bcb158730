// The page behind a link: it explains what it will do, measures when its owner starts it, sends the answer, shows the result.

import { Session } from "./session.js";

const BEAT_MS = 3000, RETRY_MS = 2000, MOST_TRIES = 30, DECIDE_MS = 60_000, LEAST_SAMPLES = 10;
const NAME = "msdc-name";
const GONE = "The computer does not wait for this device any more: the link was started elsewhere, or its time is over.";
const HIDDEN = "This page was not in front for a moment. Browsers slow down pages that nobody sees, so the times would be wrong.";
const $ = (id) => document.getElementById(id);
const show = (...ids) => {
  for (const id of ["before", "during", "after", "noisy", "failure", "again", "send"]) $(id).hidden = !ids.includes(id);
};
// A page that is loaded again keeps its name; some private windows keep nothing.
const kept = {
  read: (key) => {
    try {
      return sessionStorage.getItem(key);
    } catch {
      return null;
    }
  },
  write: (key, value) => {
    try {
      sessionStorage.setItem(key, value);
    } catch {}
  },
};
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const post = (name, value) => fetch(name, { method: "POST", body: JSON.stringify(value) });

let noisy = Infinity, session = null, beat = 0, attempt = 0, lock = null;

function end() {
  session?.stop();
  session = null;
  clearInterval(beat);
  lock?.release().catch(() => {});
  lock = null;
}

function fail(text, again = false) {
  ++attempt;
  end();
  $("failure").textContent = text;
  $("again").textContent = "Start again";
  show("failure", ...(again ? ["again"] : []));
}

// Chromium gives these on https and localhost only, other browsers never: null is unknown.
async function hints() {
  const wanted = ["model", "platformVersion", "fullVersionList"];
  const values = await navigator.userAgentData?.getHighEntropyValues(wanted).catch(() => null);
  if (!values) return null;
  const text = (value) => (value ? String(value).slice(0, 100) : null);
  return {
    model: text(values.model),
    platform: text(values.platform),
    platform_version: text(values.platformVersion),
    version: text(values.fullVersionList?.find(({ brand }) => brand === "Chromium")?.version),
  };
}

async function battery() {
  const found = await navigator.getBattery?.().catch(() => null);
  return found ? { percent: Math.round(100 * found.level), charging: found.charging } : null;
}

// Distance of the 10th and the 90th percentile, relative to the median, as the computer's report judges noise.
function spreadOf(samples) {
  const sorted = [...samples].sort((a, b) => a - b), at = (part) => sorted[Math.round(part * (sorted.length - 1))];
  return samples.length < LEAST_SAMPLES ? 0 : (at(0.9) - at(0.1)) / (at(0.5) || 1);
}

// Networks of phones come and go: try for a minute.
async function send(number, answer, mine) {
  for (let tries = 1; mine === attempt; ++tries) {
    try {
      return await post(`${number}/answer`, answer);
    } catch (error) {
      if (tries === MOST_TRIES) throw error;
      $("state").textContent = "The computer cannot be reached; trying again";
      await pause(RETRY_MS);
    }
  }
  return null;
}

function result({ name, latency, load_ms: load, agrees, texts, scores }) {
  const ms = (value) => `${value.toLocaleString("en", { maximumSignificantDigits: 3 })} ms`;
  const row = (what, value) => {
    const cells = [document.createElement("td"), document.createElement("td")];
    cells[0].textContent = what;
    cells[1].textContent = value;
    $("rows").append(document.createElement("tr"));
    $("rows").lastChild.append(...cells);
  };
  $("verdict").textContent = agrees
    ? `Done. The computer has the result of ${name}.`
    : `Done, but this device gives different output than the computer that made the model. The result of ${name} is marked.`;
  $("rows").replaceChildren();
  for (const [tokens, value] of latency) row(`${tokens} tokens`, ms(value));
  row("Loading the model, once", ms(load));
  for (const [task, score] of scores) row(`Accuracy (${task}), of 100`, score.toFixed(1));
  $("table").hidden = false;
  $("last").textContent = `${agrees ? `All ${texts} check texts gave the expected result. ` : ""}You can close this page.`;
  show("after");
}

async function start() {
  const mine = ++attempt;
  end();
  show("during");
  $("state").textContent = "Starting";
  $("progress").removeAttribute("value");
  // Browsers may cut an emoji in half at the longest name.
  const name = $("name").value.replace(/[\ud800-\udfff]/gu, "\ufffd");
  let reply;
  try {
    reply = await post("start", { name });
  } catch {
    return fail("The computer cannot be reached. Is this device in the same network?", true);
  }
  if (mine !== attempt) return;
  if (!reply.ok) return fail(GONE);
  const { number } = await reply.json();
  lock = (await navigator.wakeLock?.request("screen").catch(() => null)) ?? null;
  const before = { hints: await hints(), battery_before: await battery() };
  if (mine !== attempt) return;
  if (document.hidden) return fail(HIDDEN, true);
  let phase = "load";
  beat = setInterval(async () => {
    const got = await fetch(`${number}/alive`, { method: "POST", body: phase }).catch(() => null);
    // While the result is sent there is no session: what becomes of it is the answer's reply.
    if (got && !got.ok && session && mine === attempt) fail(GONE);
  }, BEAT_MS);
  session = new Session((now) => {
    phase = now.phase;
    $("state").textContent = `${now.text} (${Math.floor(100 * now.done)} %)`;
    $("progress").value = now.done;
  });
  const found = await session.answer;
  if (mine !== attempt) return;
  session = null;
  const spread = Math.max(0, ...(found.latency ?? []).map(({ samples }) => spreadOf(samples)));
  if (spread > noisy) {
    phase = "noisy";
    $("spread").textContent = spread > 1 ? "more than 100 %" : `${Math.round(100 * spread)} %`;
    $("again").textContent = "Measure again";
    show("noisy", "again", "send");
    await Promise.race([new Promise((resolve) => ($("send").onclick = resolve)), pause(DECIDE_MS)]);
    if (mine !== attempt) return;
    show("during");
  }
  $("state").textContent = "Sending the result";
  const answer = found.error ? found : { ...found, ...before, name, battery_after: await battery() };
  let got;
  try {
    got = await send(number, answer, mine);
  } catch {
    return fail("The result could not be sent: the computer cannot be reached.", true);
  }
  if (mine !== attempt) return;
  end();
  const shown = await got.json().catch(() => ({}));
  if (got.ok) result(shown);
  else fail(found.error ? `This device cannot run the model: ${found.error}` : `The computer did not take the result: ${shown.error ?? got.status}.`);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden && session) fail(HIDDEN, true);
});
$("name").addEventListener("keydown", (event) => event.key === "Enter" && $("name").blur());
$("name").addEventListener("input", () => kept.write(NAME, $("name").value));
$("start").addEventListener("click", start);
$("again").addEventListener("click", start);

try {
  const about = await (await fetch("about.json")).json();
  $("model").textContent = about.model;
  $("size").textContent = `${(about.bytes / 1e6).toFixed(0)} MB`;
  $("sentences").textContent = `${about.sentences.toLocaleString("en")}`;
  $("name").value = kept.read(NAME) ?? about.name;
  noisy = about.noisy;
  $("start").disabled = false;
} catch {
  fail(GONE);
}
