// Times pairs of models on ONNX Runtime's WebAssembly, in Node, on one thread:
//
//   node --no-liftoff time_links.mjs MODULES
//
// MODULES as in tests/wasm/run_cases.mjs. Each line of the standard input is JSON: {models: [FILE ...],
// feeds: FILE.npz, level, runs}. The answer is a line, too: {seconds: [least CPU seconds of one run of
// each model]}, or {error: what ONNX Runtime said}. The models run in turns. --no-liftoff has V8 compile
// every kernel once, with optimization, so that no run waits for its compiler.
//
// CPU time, which counts microseconds, is that of runs of SHORT_S and more. Of shorter ones it is the
// time of the wall, which counts nanoseconds: the least of them all was not interrupted.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { feeds, runtime } from "../../tests/wasm/sessions.mjs";

const OTHERS = new Float64Array((4 << 20) / 8); // in a network, weights of a node are not in the cache
const SHORT_S = 1e-3;
const ort = runtime(process.argv[2]);

function cpu_seconds() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

async function least({ models, feeds: file, level, runs }) {
  const options = { executionProviders: ["wasm"], graphOptimizationLevel: level, logSeverityLevel: 4 };
  const inputs = feeds(ort, file), sessions = [];
  try {
    for (const model of models) sessions.push(await ort.InferenceSession.create(readFileSync(model), options));
    const seconds = models.map(() => Infinity);
    for (let round = 0; round <= runs; round++)
      for (const [i, session] of sessions.entries()) {
        OTHERS.fill(round);
        const wall = process.hrtime.bigint(), cpu = cpu_seconds();
        await session.run(inputs, [session.outputNames[0]]); // all nodes run; a result costs 4 us in JavaScript
        const used = cpu_seconds() - cpu, passed = Number(process.hrtime.bigint() - wall) / 1e9;
        if (round) seconds[i] = Math.min(seconds[i], used < SHORT_S ? passed : used);
      }
    return seconds;
  } finally {
    for (const session of sessions) await session.release();
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = { seconds: await least(JSON.parse(line)) };
  } catch (error) {
    answer = { error: String(error.message ?? error) };
  }
  console.log(JSON.stringify(answer));
}
