// Loads every variant of hub folders with transformers.js, and prints what each gives, as JSON.
//   node load.mjs FOLDER_OF_HUB_FOLDERS REQUEST.json
import { readFileSync } from 'node:fs';
import {
  AutoModel, AutoModelForCausalLM, AutoModelForImageClassification, AutoTokenizer, Tensor, env,
} from '@huggingface/transformers';

env.allowRemoteModels = false;
env.localModelPath = process.argv[2];
const request = JSON.parse(readFileSync(process.argv[3], 'utf8'));
const pixels = new Tensor('float32', Float32Array.from(request.pixels), [1, 3, 32, 32]);
const tokens = async (name) => (await AutoTokenizer.from_pretrained(name))(request.text);
const given = {};

for (const dtype of Object.keys(request.files)) {
  const encoder = await AutoModel.from_pretrained('encoder', { dtype });
  const vit = await AutoModelForImageClassification.from_pretrained('vit', { dtype });
  const decoder = await AutoModelForCausalLM.from_pretrained('decoder', { dtype });
  const { last_hidden_state } = await encoder(await tokens('encoder'));
  const { logits } = await vit({ pixel_values: pixels });
  const said = await decoder.generate({ ...await tokens('decoder'), max_new_tokens: request.tokens });
  given[dtype] = {
    encoder: Array.from(last_hidden_state.data),
    vit: Array.from(logits.data),
    decoder: Array.from(said.data, Number),
  };
}
console.log(JSON.stringify(given));
