// The search page in a frame as wide as a phone, driven through its own controls.
const until = async (what, condition) => {
  for (let i = 0; i < 12000; ++i) {
    const value = condition();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`never: ${what}`);
};

export default async function run() {
  const frame = document.createElement("iframe");
  frame.style.cssText = "width: 390px; height: 844px";
  frame.src = "/bundle/web/demo.html";
  document.body.append(frame);
  const shown = () => frame.contentDocument?.getElementById("state");
  await until("ready", () => frame.contentDocument?.body?.dataset.ready || shown()?.classList.contains("failed"));
  if (shown().classList.contains("failed")) throw new Error(shown().textContent);
  const page = frame.contentDocument, state = page.getElementById("state");
  const lines = () => [...page.querySelectorAll("#hits li span")].map((line) => line.textContent);
  const type = (field, text, event) => {
    field.value = text;
    field.dispatchEvent(new Event(event));
  };
  const answer = { notes: lines().length, indexed: state.textContent };
  // A note's own text must be its best hit, whatever the weights; quick typing leaves the last query's answer.
  answer.typed = lines()[11];
  const query = page.getElementById("query");
  for (let end = 1; end <= answer.typed.length; ++end) type(query, answer.typed.slice(0, end), "input");
  await until("hits", () => state.textContent.includes("of 16") && lines()[0] === answer.typed);
  answer.found = lines();
  answer.cosines = [...page.querySelectorAll("#hits li b")].map((number) => Number(number.textContent));
  answer.first = lines()[0];
  answer.searched = state.textContent;
  answer.overflow = page.documentElement.scrollWidth - page.documentElement.clientWidth;
  page.querySelector("#examples button").click();
  answer.example = query.value;
  type(query, "", "input");
  type(page.getElementById("notes"), "only one note\n\n", "change");
  await until("edited", () => lines().join() === "only one note");
  answer.edited = lines();
  return answer;
}
