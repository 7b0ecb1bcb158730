import bundle from "./model/golden.json";

/** Short texts with their vectors at export. */
export function golden(count = 8) {
  const bytes = Uint8Array.from(atob(bundle.vectors.executorch), (letter) => letter.charCodeAt(0));
  const rows = new Float32Array(bytes.buffer), { width } = bundle;
  const vectorOf = (row: number) => rows.slice(row * width, (row + 1) * width);
  return bundle.texts.slice(0, count).map((text, row) => ({ text, vector: vectorOf(row) }));
}
