// Ids of many texts and the golden vectors' check, of a bundle as large as a real one.
import { Encoder } from "/bundle/web/msdc.js";

export default async function run() {
  const { texts } = await (await fetch("/request/request.json")).json();
  const encoder = await Encoder.load("/bundle");
  return { rows: await encoder.tokenize(texts, { prompt: "" }), selfTest: await encoder.selfTest() };
}
