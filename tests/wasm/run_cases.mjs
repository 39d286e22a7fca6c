// Runs a folder of models on ONNX Runtime's WebAssembly, in Node, on one thread:
//
//   node run_cases.mjs MODULES CASES RESULTS
//
// MODULES is the folder that scripts/setup_wasm prints. CASES has NAME.onnx and NAME.npz, its inputs
// by name. RESULTS gets NAME.npz, its outputs as arr_0, arr_1 ..., or NAME.error, what ONNX Runtime
// said: the protocol of tests/isa/run_cases.py.

import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { read, write } from "./npz.mjs";

const [modules, cases, results] = process.argv.slice(2);
const ort = createRequire(join(resolve(modules), "package.json"))("onnxruntime-web");
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

function tensor({ dtype, dims, data }) {
  const [type, Elements] = TYPES[dtype] ?? [];
  if (!type) throw new Error(`inputs of type ${dtype} are not supported`);
  return new ort.Tensor(type, new Elements(new Uint8Array(data).buffer), dims);
}

function array({ type, dims, data }) {
  if (!DTYPES[type]) throw new Error(`outputs of type ${type} are not supported`);
  return { dtype: DTYPES[type], dims, data: Buffer.from(data.buffer, data.byteOffset, data.byteLength) };
}

function mapped(values, change) {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, change(value)]));
}

async function outputs(name) {
  const session = await ort.InferenceSession.create(readFileSync(join(cases, `${name}.onnx`)), OPTIONS);
  try {
    const found = await session.run(mapped(read(readFileSync(join(cases, `${name}.npz`))), tensor));
    return session.outputNames.map((each) => found[each]);
  } finally {
    await session.release();
  }
}

ort.env.wasm.numThreads = 1;
ort.env.logLevel = "fatal";
for (const file of readdirSync(cases).sort()) {
  if (!file.endsWith(".onnx")) continue;
  const name = file.slice(0, -".onnx".length);
  try {
    const found = (await outputs(name)).map((each, i) => [`arr_${i}`, array(each)]);
    writeFileSync(join(results, `${name}.npz`), write(Object.fromEntries(found)));
  } catch (error) {
    writeFileSync(join(results, `${name}.error`), String(error.message ?? error));
  }
}
