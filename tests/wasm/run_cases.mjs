// Runs a folder of models on ONNX Runtime's WebAssembly, in Node, on one thread:
//
//   node run_cases.mjs MODULES CASES RESULTS
//
// MODULES is the folder that scripts/setup_wasm prints. CASES has NAME.onnx and NAME.npz, its inputs
// by name. RESULTS gets NAME.npz, its outputs as arr_0, arr_1 ..., or NAME.error, what ONNX Runtime
// said: the protocol of tests/isa/run_cases.py.

import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { write } from "./npz.mjs";
import { array, feeds, open, runtime } from "./sessions.mjs";

const [modules, cases, results] = process.argv.slice(2);
const ort = runtime(modules);

async function outputs(name) {
  const session = await open(ort, join(cases, `${name}.onnx`));
  try {
    const found = await session.run(feeds(ort, join(cases, `${name}.npz`)));
    return session.outputNames.map((each) => found[each]);
  } finally {
    await session.release();
  }
}

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
