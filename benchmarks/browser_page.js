// The bundle's search page in a frame, driven through its own controls: notes indexed, a key pressed to results shown.
const frame = document.createElement("iframe");
frame.style.cssText = "width: 390px; height: 844px";

// Report progress to the benchmark, which reads the processor time of the browser's processes.
const mark = (name) => fetch("/answer", { method: "POST", body: JSON.stringify({ mark: name }) });

// Time until the page's state line says `pattern`, from the moment `act` is called.
function timed(state, pattern, act) {
  return new Promise((resolve, reject) => {
    const observer = new MutationObserver(() => {
      if (state.classList.contains("failed")) reject(new Error(state.textContent));
      if (!pattern.test(state.textContent)) return;
      observer.disconnect();
      resolve(performance.now() - started);
    });
    observer.observe(state, { childList: true, characterData: true, subtree: true });
    const started = performance.now();
    act();
  });
}

export default async function run() {
  const { lines, queries, passes } = await (await fetch("/request/request.json")).json();
  frame.src = "/bundle/web/demo.html";
  document.body.append(frame);
  const page = () => frame.contentDocument;
  while (!page()?.body?.dataset.ready) {
    if (page()?.getElementById("state")?.classList.contains("failed")) throw new Error(page().getElementById("state").textContent);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const [state, query, notes] = ["state", "query", "notes"].map((id) => page().getElementById(id));
  const put = (field, text, event) => () => {
    field.value = text;
    field.dispatchEvent(new Event(event));
  };
  const index_ms = [], key_ms = [];
  for (let pass = 0; pass < passes; ++pass) {
    await mark("index");
    index_ms.push(await timed(state, /notes indexed/, put(notes, lines.join("\n"), "change")));
    await mark("indexed");
  }
  for (let pass = 0; pass < passes; ++pass) {
    for (const text of queries) {
      // All letters but the last are typed first; the press of the last is timed.
      await timed(state, /notes in /, put(query, text.slice(0, -1), "input"));
      key_ms.push(await timed(state, /notes in /, put(query, text, "input")));
    }
  }
  return { index_ms, key_ms, hits: page().querySelectorAll("#hits li").length };
}
