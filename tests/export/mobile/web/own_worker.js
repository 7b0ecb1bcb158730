// A worker of an app: it has messages of its own, and imports the module for the encoder's.
import "/bundle/web/msdc.js";

const heard = [];
addEventListener("message", ({ data }) => {
  heard.push(data);
  postMessage(heard);
});
