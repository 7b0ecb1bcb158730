// One measurement in a worker of this page, and what only the page knows of it.

const TICK_MS = 1000;

const facts = () => ({
  agent: navigator.userAgent.slice(0, 1000),
  secure: isSecureContext,
  isolated: globalThis.crossOriginIsolated ?? false,
  cores: navigator.hardwareConcurrency ?? null,
  device_memory_gib: navigator.deviceMemory ?? null,
});

export class Session {
  // `onProgress({ phase, text, done })`; `answer` resolves to what the server expects, or to { error }.
  constructor(onProgress) {
    this.hidden = document.hidden;
    this.longestGap = 0;
    this.onVisibility = () => (this.hidden ||= document.hidden);
    document.addEventListener("visibilitychange", this.onVisibility);
    let last = performance.now();
    this.ticking = setInterval(() => {
      this.longestGap = Math.max(this.longestGap, performance.now() - last);
      last = performance.now();
    }, TICK_MS);
    this.answer = new Promise((resolve) => {
      const end = (value) => (this.stop(), resolve(value));
      this.worker = new Worker("measure.js", { type: "module", name: "msdc-bench" });
      this.worker.onerror = (event) => end({ error: `the worker failed: ${event.message ?? "not loaded"}` });
      this.worker.onmessage = ({ data }) => {
        if (data.phase) return onProgress(data);
        if (data.error) return end(data);
        end({ ...data, page: { ...facts(), hidden: this.hidden, timer_gap_ms: this.longestGap } });
      };
    });
  }

  stop() {
    clearInterval(this.ticking);
    document.removeEventListener("visibilitychange", this.onVisibility);
    this.worker.terminate();
  }
}
