// onnxruntime-web with the address of its binary: without it, its script looks for a third file of the package.
import * as ort from "./ort.wasm.bundle.min.mjs";
ort.env.wasm.wasmPaths = { wasm: new URL("ort-wasm-simd-threaded.wasm", import.meta.url).href };
export const { InferenceSession, Tensor, env } = ort;
