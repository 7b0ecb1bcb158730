import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const MODULE = ["model/web/msdc.js", "model/web/search.wasm"]; // Vite takes them from public/

// The service worker of this build: it answers with its files. A later build's takes over when all tabs are closed.
const worker = (files: string[], name: string) => `
const FILES = ${JSON.stringify(files)}, NAME = "${name}";
const install = async () => (await caches.open(NAME)).addAll(FILES);
const isFormer = (name) => name.startsWith("notes-") && name !== NAME;
const clean = async () => Promise.all((await caches.keys()).filter(isFormer).map((name) => caches.delete(name)));
const answer = async (request) => (await (await caches.open(NAME)).match(request)) ?? fetch(request);
self.addEventListener("install", (event) => event.waitUntil(install()));
self.addEventListener("activate", (event) => event.waitUntil(clean()));
self.addEventListener("fetch", (event) => event.respondWith(answer(event.request)));
`;

const offline: Plugin = {
  name: "offline",
  generateBundle(_, bundle) {
    const built = Object.values(bundle).map((file) => (file.type === "asset" ? file.source : file.code));
    const hash = createHash("sha256");
    for (const content of [...built, ...MODULE.map((name) => readFileSync(`public/${name}`))]) hash.update(content);
    const files = ["./", ...Object.keys(bundle).filter((name) => name !== "index.html"), ...MODULE];
    const source = worker(files, `notes-${hash.digest("hex").slice(0, 16)}`);
    this.emitFile({ type: "asset", fileName: "worker.js", source });
  },
};

const manifest = readFileSync("public/model/bundle.json");
export default defineConfig({
  base: "./",
  plugins: [react(), offline],
  // This model and no other, which starts from the browser's cache.
  define: { MODEL_SHA256: JSON.stringify(createHash("sha256").update(manifest).digest("hex")) },
});
