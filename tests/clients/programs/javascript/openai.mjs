// OpenAI's client.

import OpenAI, { BadRequestError, NotFoundError } from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";

import { HELLO_URL, SAYING_URL, equal, feature, list, rejected, values } from "../cases.mjs";
import { PAINT, Paint } from "../paint.mjs";

export const PACKAGE = "openai";

const { ANSWER, ANSWER_TOKENS, CHAT_TOKENS, CITY, FIRST_TOKENS, HELLO, MESSAGES, PROMPT_TOKENS, QUESTION } = values;
const { SAYING, THINK_MESSAGES, THOUGHT, WEATHER_ANSWER, WEATHER_MESSAGES, WEATHER_RESULT, WEATHER_TOOL } = values;
const GREEDY = { model: HELLO, messages: MESSAGES, temperature: 0 };
const WEATHER = { model: SAYING, messages: WEATHER_MESSAGES, tools: [WEATHER_TOOL] };

const client = new OpenAI({ baseURL: `${HELLO_URL}/v1`, apiKey: "any", maxRetries: 0 });
const saying = new OpenAI({ baseURL: `${SAYING_URL}/v1`, apiKey: "any", maxRetries: 0 });

feature("chat", "OpenAI chats", "answers", async () => {
  const answer = await client.chat.completions.create(GREEDY);
  equal([answer.choices[0].message.content, answer.choices[0].finish_reason], [ANSWER, "stop"]);
  equal([answer.usage.prompt_tokens, answer.usage.completion_tokens], [CHAT_TOKENS, ANSWER_TOKENS]);
});

feature("chatStream", "OpenAI chats", "streams", async () => {
  const usage = { stream: true, stream_options: { include_usage: true } };
  const chunks = await list(await client.chat.completions.create({ ...GREEDY, ...usage }));
  const last = chunks.pop();
  equal(chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join(""), ANSWER);
  equal([last.choices, last.usage.completion_tokens], [[], ANSWER_TOKENS]);
  const final = await client.chat.completions.stream(GREEDY).finalChatCompletion();
  equal([final.choices[0].message.content, final.choices[0].finish_reason], [ANSWER, "stop"]);
});

feature("logProbabilities", "OpenAI chats", "log probabilities", async () => {
  const answer = await client.chat.completions.create({ ...GREEDY, logprobs: true, top_logprobs: 2 });
  const tokens = answer.choices[0].logprobs.content;
  equal(
    tokens.slice(0, 4).map((token) => token.token),
    FIRST_TOKENS,
  );
  equal(
    tokens.map((token) => token.top_logprobs[0].logprob),
    tokens.map((token) => token.logprob),
  );
});

feature("parsed", "OpenAI chats", "structured outputs", async () => {
  const format = zodResponseFormat(Paint, "paint");
  const answer = await client.chat.completions.parse({ ...GREEDY, response_format: format, max_tokens: 200 });
  equal(answer.choices[0].message.parsed, PAINT);
});

feature("tools", "OpenAI chats", "tool calls and their results", async () => {
  const { message, finish_reason } = (await saying.chat.completions.create(WEATHER)).choices[0];
  const [call] = message.tool_calls;
  equal([finish_reason, call.function.name, JSON.parse(call.function.arguments)], ["tool_calls", "weather", CITY]);
  const result = { role: "tool", tool_call_id: call.id, content: WEATHER_RESULT };
  const messages = [...WEATHER_MESSAGES, message, result];
  const last = await saying.chat.completions.create({ ...WEATHER, messages });
  equal([last.choices[0].message.content, last.choices[0].finish_reason], [WEATHER_ANSWER, "stop"]);
});

feature("toolRunner", "OpenAI chats", "`runTools`, which streams tool calls", async () => {
  const tool = { ...WEATHER_TOOL.function, function: () => WEATHER_RESULT, parse: JSON.parse };
  const tools = [{ type: "function", function: tool }];
  const runner = saying.chat.completions.runTools({ ...WEATHER, tools, stream: true });
  equal(await runner.finalContent(), WEATHER_ANSWER);
});

feature("reasoning", "OpenAI chats", "reasoning", async () => {
  const answer = await saying.chat.completions.create({ model: SAYING, messages: THINK_MESSAGES });
  equal([answer.choices[0].message.content, answer.choices[0].message.reasoning_content], [ANSWER, THOUGHT]);
});

feature("errors", "OpenAI chats", "errors", async () => {
  for (const [changed, kind, said] of [
    [{ temperature: -1 }, BadRequestError, "temperature"],
    [{ max_tokens: 100_000 }, BadRequestError, "maximum context length is 2048 tokens"],
    [{ model: "gpt-none" }, NotFoundError, "gpt-none"],
  ]) {
    const error = await rejected(client.chat.completions.create({ ...GREEDY, ...changed }), said);
    equal(error instanceof kind, true);
  }
});

feature("completion", "OpenAI completions", "answers", async () => {
  const answer = await client.completions.create({ model: HELLO, prompt: QUESTION, temperature: 0, max_tokens: 64 });
  equal([answer.choices[0].text, answer.usage.prompt_tokens], [ANSWER, PROMPT_TOKENS]);
});

feature("completionStream", "OpenAI completions", "streams", async () => {
  const asked = { model: HELLO, prompt: QUESTION, temperature: 0, max_tokens: 64, stream: true };
  const chunks = await list(await client.completions.create(asked));
  equal(chunks.map((chunk) => chunk.choices[0].text).join(""), ANSWER);
});

feature("models", "OpenAI models", "list", async () => {
  const names = (await list(client.models.list())).map((model) => model.id);
  equal(names.slice(0, 2), [HELLO, "gpt-hello"]);
});

feature("response", "OpenAI Responses", "answers", async () => {
  const answer = await client.responses.create({ model: HELLO, input: QUESTION, temperature: 0 });
  equal([answer.output_text, answer.status, answer.usage.output_tokens], [ANSWER, "completed", ANSWER_TOKENS]);
});

feature("responseStream", "OpenAI Responses", "streams", async () => {
  const stream = client.responses.stream({ model: HELLO, input: QUESTION, temperature: 0 });
  const deltas = (await list(stream)).filter((event) => event.type === "response.output_text.delta");
  equal([deltas.map((event) => event.delta).join(""), (await stream.finalResponse()).output_text], [ANSWER, ANSWER]);
});

feature("responseParsed", "OpenAI Responses", "structured outputs", async () => {
  const text = { format: zodTextFormat(Paint, "paint") };
  const asked = { model: HELLO, input: QUESTION, temperature: 0, text, max_output_tokens: 200 };
  equal((await client.responses.parse(asked)).output_parsed, PAINT);
});

feature("responseTools", "OpenAI Responses", "tool calls and their results", async () => {
  const tools = [{ type: "function", strict: false, ...WEATHER_TOOL.function }];
  const first = await saying.responses.create({ model: SAYING, input: WEATHER_MESSAGES, tools });
  const call = first.output.find((item) => item.type === "function_call");
  equal([call.name, JSON.parse(call.arguments)], ["weather", CITY]);
  const input = [{ type: "function_call_output", call_id: call.call_id, output: WEATHER_RESULT }];
  const last = await saying.responses.create({ model: SAYING, previous_response_id: first.id, input, tools });
  equal(last.output_text, WEATHER_ANSWER);
});

feature("embeddings", "OpenAI embeddings", "vectors", async () => {
  const answer = await client.embeddings.create({ model: HELLO, input: [QUESTION, ANSWER, QUESTION] });
  const [first, second, third] = answer.data.map((item) => item.embedding);
  equal([first.length > 0, second.length, third], [true, first.length, first]);
  equal(first.reduce((sum, number) => sum + number * number, 0).toFixed(3), "1.000");
});
