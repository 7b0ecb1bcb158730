// The page around the measuring worker: it signals every second that it is alive, and sends the answer.

import { Session } from "./session.js";

const BEAT_MS = 1000;
const state = document.getElementById("state");
let phase = "start";

const post = (name, body) => fetch(name, { method: "POST", body });

const { number } = await (await post("start", "{}")).json();
const beat = setInterval(() => post(`${number}/alive`, phase).catch(() => {}), BEAT_MS);
const session = new Session((now) => {
  phase = now.phase;
  state.textContent = now.text;
});
const answer = await session.answer;
clearInterval(beat);
const got = await post(`${number}/answer`, JSON.stringify(answer));
state.textContent = got.ok ? "Done" : `Not taken: status ${got.status}`;
