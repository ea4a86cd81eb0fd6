// @ts-check
// Dialects that know no chats: TGI's, Triton's and happy_vllm's. They get the prompt that the chat template makes.

import { adapterField, lmiParameters, mostTokens, targetModel } from "./asked.js";
import { posted } from "./python.js";

/** @typedef {import("./asked.js").Asked} Asked */

/** @type {import("./asked.js").Dialect} */
export const tgi = {
  id: "tgi",
  label: "TGI: generate",
  modes: ["chat", "text"],
  promptOnly: true,
  streams: true,
  request: (asked) => {
    const { stop_sequences: stop, ...parameters } = /** @type {any} */ (lmiParameters(asked));
    return {
      path: asked.stream ? "/generate_stream" : "/generate",
      headers: targetModel(asked),
      body: { inputs: prompt(asked), parameters: { ...parameters, ...(stop ? { stop } : {}), ...adapterId(asked) } },
    };
  },
  text: (answer) => answer.generated_text,
  python: (asked, request, origin) => posted(asked, request, origin, `["generated_text"]`),
};

/** @type {import("./asked.js").Dialect} */
export const triton = {
  id: "triton",
  label: "Triton: generate",
  modes: ["chat", "text"],
  promptOnly: true,
  streams: true,
  request: (asked) => {
    const { max_new_tokens: most, ...parameters } = lmiParameters(asked);
    return {
      path: `/v2/models/${encodeURIComponent(asked.model)}/generate${asked.stream ? "_stream" : ""}`,
      body: {
        text_input: prompt(asked),
        max_tokens: most,
        ...parameters,
        ...(asked.stream ? {} : { exclude_input_in_output: true }),
        ...(asked.adapter ? { lora_name: asked.adapter } : {}),
      },
    };
  },
  text: (answer) => answer.text_output,
  python: (asked, request, origin) => posted(asked, request, origin, `["text_output"]`),
};

/** @type {import("./asked.js").Dialect} */
export const happyVllm = {
  id: "happy_vllm",
  label: "happy_vllm",
  modes: ["chat", "text"],
  promptOnly: true,
  streams: true,
  request: (asked) => ({
    path: asked.stream ? "/v1/generate_stream" : "/v1/generate",
    body: {
      ...(asked.several ? { model: asked.model } : {}),
      prompt: prompt(asked),
      ...asked.values,
      max_tokens: mostTokens(asked),
      ...adapterField(asked),
    },
  }),
  text: (answer) => answer.responses[0],
  python: (asked, request, origin) => posted(asked, request, origin, `["responses"][0]`),
};

/** @param {Asked} asked */
function prompt(asked) {
  return asked.mode === "text" ? asked.text : (asked.prompt?.text ?? "");
}

/** @param {Asked} asked */
function adapterId(asked) {
  return asked.adapter ? { adapter_id: asked.adapter } : {};
}
