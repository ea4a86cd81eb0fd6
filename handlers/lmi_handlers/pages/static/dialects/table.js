// @ts-check
// The dialects that the server speaks.

import { anthropic } from "./anthropic.js";
import { lmi, sagemaker } from "./lmi.js";
import { ollamaChat, ollamaGenerate } from "./ollama.js";
import { openaiChat, openaiCompletions, openaiResponses } from "./openai.js";
import { happyVllm, tgi, triton } from "./prompts.js";

/** @type {import("./query.js").Dialect[]} */
export const DIALECTS = [
  openaiChat,
  openaiCompletions,
  openaiResponses,
  anthropic,
  ollamaChat,
  ollamaGenerate,
  lmi,
  sagemaker,
  tgi,
  triton,
  happyVllm,
];
