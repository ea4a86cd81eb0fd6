// @ts-check
// Dialects that know no chats: TGI's, Triton's and happy_vllm's. They get the prompt that the chat template makes.

import { adapterField, lmiParameters, mostTokens, targetModel } from "./query.js";
import { posted } from "./python.js";

/** @typedef {import("./query.js").Query} Query */

/** @type {import("./query.js").Dialect} */
export const tgi = {
  id: "tgi",
  label: "TGI: generate",
  modes: ["chat", "text"],
  promptOnly: true,
  streams: true,
  request: (query) => {
    const { stop_sequences: stop, ...parameters } = /** @type {any} */ (lmiParameters(query));
    return {
      path: query.stream ? "/generate_stream" : "/generate",
      headers: targetModel(query),
      body: { inputs: prompt(query), parameters: { ...parameters, ...(stop ? { stop } : {}), ...adapterId(query) } },
    };
  },
  text: (answer) => answer.generated_text,
  python: (query, request, origin) => posted(query, request, origin, `["generated_text"]`),
};

/** @type {import("./query.js").Dialect} */
export const triton = {
  id: "triton",
  label: "Triton: generate",
  modes: ["chat", "text"],
  promptOnly: true,
  streams: true,
  request: (query) => {
    const { max_new_tokens: most, ...parameters } = lmiParameters(query);
    return {
      path: `/v2/models/${encodeURIComponent(query.model)}/generate${query.stream ? "_stream" : ""}`,
      body: {
        text_input: prompt(query),
        max_tokens: most,
        ...parameters,
        ...(query.stream ? {} : { exclude_input_in_output: true }),
        ...(query.adapter ? { lora_name: query.adapter } : {}),
      },
    };
  },
  text: (answer) => answer.text_output,
  python: (query, request, origin) => posted(query, request, origin, `["text_output"]`),
};

/** @type {import("./query.js").Dialect} */
export const happyVllm = {
  id: "happy_vllm",
  label: "happy_vllm",
  modes: ["chat", "text"],
  promptOnly: true,
  streams: true,
  request: (query) => ({
    path: query.stream ? "/v1/generate_stream" : "/v1/generate",
    body: {
      ...(query.several ? { model: query.model } : {}),
      prompt: prompt(query),
      ...query.values,
      max_tokens: mostTokens(query),
      ...adapterField(query),
    },
  }),
  text: (answer) => answer.responses[0],
  python: (query, request, origin) => posted(query, request, origin, `["responses"][0]`),
};

/** @param {Query} query */
function prompt(query) {
  return query.mode === "text" ? query.text : (query.prompt?.text ?? "");
}

/** @param {Query} query */
function adapterId(query) {
  return query.adapter ? { adapter_id: query.adapter } : {};
}
