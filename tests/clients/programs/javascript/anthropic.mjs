// Anthropic's client.

import Anthropic, { BadRequestError } from "@anthropic-ai/sdk";

import { HELLO_URL, SAYING_URL, equal, feature, list, rejected, values } from "../cases.mjs";

export const PACKAGE = "@anthropic-ai/sdk";

const { ANSWER, ANSWER_TOKENS, CHAT_TOKENS, CITY, HELLO, MESSAGES, SAYING, THINK_MESSAGES, THOUGHT } = values;
const { WEATHER_ANSWER, WEATHER_FUNCTION, WEATHER_MESSAGES, WEATHER_RESULT } = values;
const GREEDY = { model: HELLO, messages: MESSAGES, max_tokens: 64, temperature: 0 };
const TOOL = { name: "weather", description: "Weather.", input_schema: WEATHER_FUNCTION.parameters };
const WEATHER = { model: SAYING, messages: WEATHER_MESSAGES, max_tokens: 64, tools: [TOOL] };

const client = new Anthropic({ baseURL: HELLO_URL, apiKey: "any", maxRetries: 0 });
const saying = new Anthropic({ baseURL: SAYING_URL, apiKey: "any", maxRetries: 0 });

feature("message", "Anthropic Messages", "answers", async () => {
  const answer = await client.messages.create(GREEDY);
  equal([answer.content[0].text, answer.stop_reason], [ANSWER, "end_turn"]);
  equal([answer.usage.input_tokens, answer.usage.output_tokens], [CHAT_TOKENS, ANSWER_TOKENS]);
});

feature("messageStream", "Anthropic Messages", "streams", async () => {
  const stream = client.messages.stream(GREEDY);
  const deltas = (await list(stream)).filter((event) => event.type === "content_block_delta");
  equal(deltas.map((event) => event.delta.text).join(""), ANSWER);
  const final = await stream.finalMessage();
  equal([final.content[0].text, final.stop_reason, final.usage.output_tokens], [ANSWER, "end_turn", ANSWER_TOKENS]);
});

feature("tools", "Anthropic Messages", "tool calls and their results", async () => {
  const answer = await saying.messages.create(WEATHER);
  const call = answer.content.find((block) => block.type === "tool_use");
  equal([answer.stop_reason, call.name, call.input], ["tool_use", "weather", CITY]);
  const result = { type: "tool_result", tool_use_id: call.id, content: WEATHER_RESULT };
  const turns = [
    { role: "assistant", content: answer.content },
    { role: "user", content: [result] },
  ];
  const last = await saying.messages.create({ ...WEATHER, messages: [...WEATHER_MESSAGES, ...turns] });
  equal([last.content[0].text, last.stop_reason], [WEATHER_ANSWER, "end_turn"]);
});

feature("toolStream", "Anthropic Messages", "streamed tool calls", async () => {
  const final = await saying.messages.stream(WEATHER).finalMessage();
  equal([final.stop_reason, final.content.at(-1).input], ["tool_use", CITY]);
});

feature("thoughts", "Anthropic Messages", "reasoning", async () => {
  const answer = await saying.messages.create({ model: SAYING, max_tokens: 64, messages: THINK_MESSAGES });
  equal(
    answer.content.map((block) => block[block.type]),
    [THOUGHT, ANSWER],
  );
});

feature("count", "Anthropic Messages", "token counts", async () => {
  equal((await client.messages.countTokens({ model: HELLO, messages: MESSAGES })).input_tokens, CHAT_TOKENS);
});

feature("errors", "Anthropic Messages", "errors", async () => {
  const error = await rejected(client.messages.create({ ...GREEDY, max_tokens: 0 }), "max_tokens");
  equal(error instanceof BadRequestError, true);
});
