// The page around the measuring worker: it says every second that it lives, notices when it is hidden, and sends the answer.

const BEAT_MS = 1000;
const state = document.getElementById("state");
let phase = "start", hidden = document.hidden, longestGap = 0, last = performance.now();

const post = (name, body) => fetch(name, { method: "POST", body });

async function answer(value) {
  clearInterval(beat);
  const got = await post("answer", JSON.stringify(value));
  state.textContent = got.ok ? "Done" : `Not taken: status ${got.status}`;
}

document.addEventListener("visibilitychange", () => (hidden ||= document.hidden));
const beat = setInterval(() => {
  longestGap = Math.max(longestGap, performance.now() - last);
  last = performance.now();
  post("alive", phase).catch(() => {});
}, BEAT_MS);

const worker = new Worker("measure.js", { type: "module", name: "msdc-bench" });
worker.onerror = (event) => answer({ error: `the worker failed: ${event.message ?? "not loaded"}` });
worker.onmessage = async ({ data }) => {
  if (data.phase) {
    phase = data.phase;
    state.textContent = data.text ?? phase;
    return;
  }
  if (data.error) return answer(data);
  await answer({
    ...data,
    page: {
      agent: navigator.userAgent,
      hidden,
      timer_gap_ms: longestGap,
      secure: isSecureContext,
      isolated: crossOriginIsolated,
      cores: navigator.hardwareConcurrency ?? null,
      device_memory_gib: navigator.deviceMemory ?? null,
    },
  });
};
