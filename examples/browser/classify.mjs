// Classifies the images beside this page with an int8 model, and compares its logits with Python's.

import * as ort from "./ort.wasm.min.mjs";

const CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
const SIDE = 32, PIXELS = SIDE * SIDE;

async function bytes(name) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name}: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

function largest(values) {
  return values.indexOf(Math.max(...values));
}

// One image (3, 32, 32), of pixels p as (p - 128) / 64.
function draw(pixels, text, right) {
  const item = document.createElement("li"), canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIDE;
  const data = new ImageData(SIDE, SIDE);
  for (let i = 0; i < PIXELS; i++) {
    for (let c = 0; c < 3; c++) data.data[4 * i + c] = 64 * pixels[c * PIXELS + i] + 128;
    data.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(data, 0, 0);
  const caption = document.createElement("div");
  caption.textContent = text;
  caption.className = right ? "right" : "wrong";
  item.append(canvas, caption);
  document.getElementById("images").append(item);
}

async function main() {
  ort.env.wasm.numThreads = 1; // more need headers that `python -m http.server` does not send
  const [model, images, labels, logits] = await Promise.all(
    ["model.int8.onnx", "images.f32", "labels.u8", "logits.f32"].map(bytes),
  );
  const session = await ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
  const pixels = new Float32Array(images), truth = new Uint8Array(labels), wanted = new Float32Array(logits);
  let right = 0, equal = 0, milliseconds = 0;
  for (let i = 0; i < truth.length; i++) {
    const image = pixels.subarray(3 * PIXELS * i, 3 * PIXELS * (i + 1));
    const start = performance.now();
    const outputs = await session.run({ image: new ort.Tensor("float32", image, [1, 3, SIDE, SIDE]) });
    milliseconds += performance.now() - start;
    const got = Array.from(outputs[session.outputNames[0]].data), found = largest(got);
    right += found === truth[i];
    equal += got.every((value, c) => value === wanted[CLASSES.length * i + c]);
    draw(image, CLASSES[found], found === truth[i]);
  }
  const each = (milliseconds / truth.length).toFixed(1);
  return `${right} of ${truth.length} classes are right; the logits of ${equal} are Python's, bit for bit; ${each} ms an image.`;
}

main().then(
  (text) => (document.getElementById("summary").textContent = text),
  (error) => (document.getElementById("summary").textContent = `Failed: ${error.message}`),
);
