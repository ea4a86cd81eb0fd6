// Ollama's client.

import { Ollama } from "ollama";
import { z } from "zod";

import { HELLO_URL, SAYING_URL, equal, feature, list, rejected, values } from "../cases.mjs";
import { PAINT, Paint } from "../paint.mjs";

export const PACKAGE = "ollama";

const { ANSWER, ANSWER_TOKENS, CHAT_TOKENS, CITY, HELLO, MESSAGES, QUESTION, SAYING, THINK_MESSAGES, THOUGHT } = values;
const { WEATHER_ANSWER, WEATHER_MESSAGES, WEATHER_RESULT, WEATHER_TOOL } = values;
const options = { temperature: 0, num_predict: 200 };
const GREEDY = { model: HELLO, messages: MESSAGES, options };

const client = new Ollama({ host: HELLO_URL });
const saying = new Ollama({ host: SAYING_URL });

feature("generate", "Ollama", "answers", async () => {
  const answer = await client.generate({ model: HELLO, prompt: QUESTION, options });
  equal([answer.response, answer.done, answer.done_reason], [ANSWER, true, "stop"]);
  equal([answer.prompt_eval_count, answer.eval_count], [CHAT_TOKENS, ANSWER_TOKENS]);
});

feature("generateStream", "Ollama", "streams", async () => {
  const chunks = await list(await client.generate({ model: HELLO, prompt: QUESTION, options, stream: true }));
  equal(chunks.map((chunk) => chunk.response).join(""), ANSWER);
  equal(chunks.at(-1).done, true);
});

feature("chat", "Ollama", "chats", async () => {
  const answer = await client.chat(GREEDY);
  equal([answer.message.content, answer.done_reason], [ANSWER, "stop"]);
  const chunks = await list(await client.chat({ ...GREEDY, stream: true }));
  equal(chunks.map((chunk) => chunk.message.content).join(""), ANSWER);
});

feature("structured", "Ollama", "structured outputs", async () => {
  const answer = await client.chat({ ...GREEDY, format: z.toJSONSchema(Paint) });
  equal(Paint.parse(JSON.parse(answer.message.content)), PAINT);
});

feature("tools", "Ollama", "tool calls and their results", async () => {
  const asked = { model: SAYING, messages: WEATHER_MESSAGES, tools: [WEATHER_TOOL] };
  const { message } = await saying.chat(asked);
  const [call] = message.tool_calls;
  equal([call.function.name, call.function.arguments], ["weather", CITY]);
  const result = { role: "tool", tool_name: "weather", content: WEATHER_RESULT };
  const last = await saying.chat({ ...asked, messages: [...WEATHER_MESSAGES, message, result] });
  equal(last.message.content, WEATHER_ANSWER);
});

feature("thinking", "Ollama", "reasoning", async () => {
  const { message } = await saying.chat({ model: SAYING, messages: THINK_MESSAGES, think: true });
  equal([message.thinking, message.content], [THOUGHT, ANSWER]);
});

feature("embed", "Ollama", "embeddings", async () => {
  const { embeddings } = await client.embed({ model: HELLO, input: [QUESTION, ANSWER, QUESTION] });
  equal([embeddings.length, embeddings[2]], [3, embeddings[0]]);
});

feature("models", "Ollama", "models", async () => {
  const names = (await client.list()).models.map((model) => model.name.split(":")[0]);
  equal([names.includes(HELLO), (await client.show({ model: HELLO })).capabilities.includes("completion")], [true, true]);
});

feature("errors", "Ollama", "errors", async () => {
  const error = await rejected(client.chat({ ...GREEDY, model: "llama-none" }), "llama-none");
  equal(error.status_code, 404);
});
