// Sessions of onnxruntime-web's WebAssembly in Node, on one thread, and their tensors as NumPy's.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { read } from "./npz.mjs";

const OPTIONS = { executionProviders: ["wasm"], graphOptimizationLevel: "all", logSeverityLevel: 4 };

// NumPy's names of types, in ONNX Runtime's words, and the arrays that hold them in JavaScript.
const TYPES = {
  f2: ["float16", globalThis.Float16Array ?? Uint16Array],
  f4: ["float32", Float32Array],
  f8: ["float64", Float64Array],
  b1: ["bool", Uint8Array],
  i1: ["int8", Int8Array],
  u1: ["uint8", Uint8Array],
  i2: ["int16", Int16Array],
  u2: ["uint16", Uint16Array],
  i4: ["int32", Int32Array],
  u4: ["uint32", Uint32Array],
  i8: ["int64", BigInt64Array],
  u8: ["uint64", BigUint64Array],
};
const DTYPES = Object.fromEntries(Object.entries(TYPES).map(([dtype, [type]]) => [type, dtype]));

// The package of the folder that scripts/setup_wasm prints.
export function runtime(modules) {
  const ort = createRequire(join(resolve(modules), "package.json"))("onnxruntime-web");
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = "fatal";
  return ort;
}

export function open(ort, file) {
  return ort.InferenceSession.create(readFileSync(file), OPTIONS);
}

// Tensors of a .npz file, by name.
export function feeds(ort, file) {
  const arrays = Object.entries(read(readFileSync(file)));
  return Object.fromEntries(arrays.map(([name, array]) => [name, tensor(ort, array)]));
}

function tensor(ort, { dtype, dims, data }) {
  const [type, Elements] = TYPES[dtype] ?? [];
  if (!type) throw new Error(`inputs of type ${dtype} are not supported`);
  return new ort.Tensor(type, new Elements(new Uint8Array(data).buffer), dims);
}

// A tensor as npz.mjs writes it.
export function array({ type, dims, data }) {
  if (!DTYPES[type]) throw new Error(`outputs of type ${type} are not supported`);
  return { dtype: DTYPES[type], dims, data: Buffer.from(data.buffer, data.byteOffset, data.byteLength) };
}
