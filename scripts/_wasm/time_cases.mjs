// Times models in turns on ONNX Runtime's WebAssembly, in Node, on one thread:
//
//   node time_cases.mjs MODULES CASES ROUNDS
//
// MODULES and CASES as in tests/wasm/run_cases.mjs. Prints {name: [CPU seconds of one run, in each
// round]} as JSON. Before, every model runs for WARM_S, so that V8 has compiled its kernels.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { feeds, open, runtime } from "../../tests/wasm/sessions.mjs";

const [modules, cases, rounds] = process.argv.slice(2);
const WARM_S = 1.5, LEAST_S = 0.05;
const ort = runtime(modules);

function cpu_seconds() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

async function seconds(model, repeat) {
  const start = cpu_seconds();
  for (let i = 0; i < repeat; i++) await model.session.run(model.feeds);
  return (cpu_seconds() - start) / repeat;
}

const models = [];
for (const file of readdirSync(cases).sort()) {
  if (!file.endsWith(".onnx")) continue;
  const name = file.slice(0, -".onnx".length);
  const session = await open(ort, join(cases, file));
  models.push({ name, session, feeds: feeds(ort, join(cases, `${name}.npz`)), times: [] });
}
for (const model of models) {
  let runs = 0;
  const start = cpu_seconds();
  while (cpu_seconds() - start < WARM_S) runs += 1, await seconds(model, 1);
  model.repeat = Math.max(1, Math.round(LEAST_S / ((cpu_seconds() - start) / runs)));
}
for (let round = 0; round < Number(rounds); round++)
  for (const model of round % 2 ? models : models.toReversed())
    model.times.push(await seconds(model, model.repeat));
console.log(JSON.stringify(Object.fromEntries(models.map(({ name, times }) => [name, times]))));
