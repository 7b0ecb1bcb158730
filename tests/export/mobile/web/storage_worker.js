// A service worker that reads a lasting index.
import { openIndex } from "/bundle/web/search.js";

addEventListener("install", () => skipWaiting());
addEventListener("message", async ({ data, ports: [port] }) => {
  try {
    const index = await openIndex({ name: data }, null);
    const refused = await index.remove(["a"]).catch((error) => `${error.name}: ${error.message}`);
    port.postMessage({ storage: index.storage, ids: await index.ids(), found: (await index.search("milk")).length, refused });
  } catch (error) {
    port.postMessage({ error: `${error.name}: ${error.message}` });
  }
});
