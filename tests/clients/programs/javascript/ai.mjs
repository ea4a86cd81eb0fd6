// Vercel's AI SDK.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, Output, embedMany, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

import { HELLO_URL, SAYING_URL, equal, feature, list, rejected, values } from "../cases.mjs";
import { PAINT, Paint } from "../paint.mjs";

export const PACKAGE = "ai";

const { ANSWER, ANSWER_TOKENS, CHAT_TOKENS, CITY, HELLO, QUESTION, SAYING } = values;
const { THINK_QUESTION, THOUGHT, WEATHER_ANSWER, WEATHER_QUESTION, WEATHER_RESULT } = values;
const GREEDY = { prompt: QUESTION, temperature: 0, maxOutputTokens: 200, maxRetries: 0 };
const weather = tool({ inputSchema: z.object({ city: z.string() }), execute: async () => WEATHER_RESULT });
const WEATHER = { prompt: WEATHER_QUESTION, tools: { weather }, stopWhen: stepCountIs(2), maxRetries: 0 };

const openai = (url) => createOpenAI({ baseURL: `${url}/v1`, apiKey: "any" });
const compatible = (url) =>
  createOpenAICompatible({
    name: "lmi",
    baseURL: `${url}/v1`,
    includeUsage: true,
    supportsStructuredOutputs: true,
  });

async function answers(model) {
  const { text, finishReason, usage } = await generateText({ model, ...GREEDY });
  equal([text, finishReason, usage.outputTokens], [ANSWER, "stop", ANSWER_TOKENS]);
}

async function streams(model) {
  const stream = streamText({ model, ...GREEDY });
  equal((await list(stream.textStream)).join(""), ANSWER);
  equal([await stream.finishReason, (await stream.usage).outputTokens], ["stop", ANSWER_TOKENS]);
}

async function structured(model) {
  equal((await generateText({ model, ...GREEDY, output: Output.object({ schema: Paint }) })).output, PAINT);
}

async function tools(model) {
  const { text, steps } = await generateText({ model, ...WEATHER });
  equal([text, steps[0].toolCalls[0].input, steps[0].finishReason], [WEATHER_ANSWER, CITY, "tool-calls"]);
  equal((await list(streamText({ model, ...WEATHER }).textStream)).join(""), WEATHER_ANSWER);
}

async function vectors(model) {
  const { embeddings } = await embedMany({ model, values: [QUESTION, ANSWER, QUESTION], maxRetries: 0 });
  equal([embeddings.length, embeddings[2]], [3, embeddings[0]]);
}

feature("compatible", "OpenAI chats", "answers and streams with `@ai-sdk/openai-compatible`", async () => {
  await answers(compatible(HELLO_URL)(HELLO));
  await streams(compatible(HELLO_URL)(HELLO));
  equal((await generateText({ model: compatible(HELLO_URL)(HELLO), ...GREEDY })).usage.inputTokens, CHAT_TOKENS);
});

feature("compatibleStructured", "OpenAI chats", "structured outputs", async () => {
  await structured(compatible(HELLO_URL)(HELLO));
});

feature("compatibleTools", "OpenAI chats", "tool calls and their results, whole and streamed", async () => {
  await tools(compatible(SAYING_URL)(SAYING));
});

feature("reasoning", "OpenAI chats", "reasoning", async () => {
  const asked = { model: compatible(SAYING_URL)(SAYING), prompt: THINK_QUESTION };
  const answer = await generateText(asked);
  equal([answer.reasoningText, answer.text], [THOUGHT, ANSWER]);
  equal(await streamText(asked).reasoningText, THOUGHT);
});

feature("chat", "OpenAI chats", "the same with `@ai-sdk/openai`'s `chat`", async () => {
  await answers(openai(HELLO_URL).chat(HELLO));
  await streams(openai(HELLO_URL).chat(HELLO));
  await structured(openai(HELLO_URL).chat(HELLO));
  await tools(openai(SAYING_URL).chat(SAYING));
});

feature("errors", "OpenAI chats", "errors", async () => {
  const asked = { ...GREEDY, maxOutputTokens: 100_000 };
  const error = await rejected(
    generateText({ model: compatible(HELLO_URL)(HELLO), ...asked }),
    "maximum context length is 2048 tokens",
  );
  equal([APICallError.isInstance(error), error.statusCode, error.isRetryable], [true, 400, false]);
});

feature("completion", "OpenAI completions", "answers and streams with both", async () => {
  for (const model of [compatible(HELLO_URL).completionModel(HELLO), openai(HELLO_URL).completion(HELLO)]) {
    const answer = await generateText({ model, ...GREEDY });
    equal((await list(streamText({ model, ...GREEDY }).textStream)).join(""), answer.text);
    // The SDK makes a text with headings of the prompt, which the model does not know.
    equal([answer.text, answer.finishReason], [".", "stop"]);
  }
});

feature("responses", "OpenAI Responses", "answers and streams with `@ai-sdk/openai`", async () => {
  await answers(openai(HELLO_URL)(HELLO));
  await streams(openai(HELLO_URL)(HELLO));
});

feature("responsesStructured", "OpenAI Responses", "structured outputs", async () => {
  await structured(openai(HELLO_URL)(HELLO));
});

feature("responsesTools", "OpenAI Responses", "tool calls and their results, whole and streamed", async () => {
  await tools(openai(SAYING_URL)(SAYING));
});

feature("embeddings", "OpenAI embeddings", "vectors with both", async () => {
  await vectors(compatible(HELLO_URL).embeddingModel(HELLO));
  await vectors(openai(HELLO_URL).embedding(HELLO));
});
