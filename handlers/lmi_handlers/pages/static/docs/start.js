// What a newcomer needs: the models, and a request to the first of them that works by copy and paste.

import { curl } from "../dialects/curl.js";
import { imports, KEY_VARIABLE, keyArgument } from "../dialects/python.js";
import { copy } from "../shared/copy.js";
import { button, element } from "../shared/dom.js";
import { hasKey } from "../shared/key.js";
import { get, origin } from "../shared/server.js";

const QUESTION = "What is Deep Learning?";
const MAX_TOKENS = 64;

/**
 * A request, and the lines of Python that send it with OpenAI's client.
 * @typedef {{ path: string, body: object, call: string, result: string }} First
 */

/** What requests to a model look like, by the first of these that it can do. */
const KINDS = [
  { can: "chat", name: "chats", first: chat },
  { can: "completion", name: "text completions", first: completion },
  { can: "embeddings", name: "embeddings", first: embeddings },
];

export async function showStart(notice, models, snippets) {
  let served;
  try {
    served = (await get("/v1/models")).data;
    await get("/ping");
  } catch (error) {
    notice.className = "wrong";
    notice.textContent = `Not ready yet: ${error.message}`;
  }
  if (!served) return;
  models.replaceChildren(element("p", {}, "Models:"), list(served));
  const named = served.map((model) => [model, kindOf(model)]).find(([, kind]) => kind);
  if (named) snippets.replaceChildren(...snippetsOf(named[0], named[1].first(named[0].id)));
  else if (served.length) snippets.replaceChildren(bodyOfItsOwn(served[0].id));
}

function kindOf(model) {
  return KINDS.find((kind) => model.capabilities?.[kind.can]);
}

function list(served) {
  return element("ul", {}, ...served.map((model) => {
    const length = model.max_model_len ? `, up to ${model.max_model_len} tokens` : "";
    const what = model.parent ? `adapter of ${model.parent}` : kindOf(model)?.name ?? "its own request form";
    return element("li", {}, element("code", {}, model.id), `: ${what}${length}`);
  }));
}

/** @returns {First} */
function chat(model) {
  const body = { model, messages: [{ role: "user", content: QUESTION }], max_tokens: MAX_TOKENS };
  const messages = `[{"role": "user", "content": ${JSON.stringify(QUESTION)}}]`;
  return {
    path: "/v1/chat/completions",
    body,
    call: called("chat.completions", model, `messages=${messages}`, `max_tokens=${MAX_TOKENS}`),
    result: "answer.choices[0].message.content",
  };
}

/** @returns {First} */
function completion(model) {
  const body = { model, prompt: QUESTION, max_tokens: MAX_TOKENS };
  return {
    path: "/v1/completions",
    body,
    call: called("completions", model, `prompt=${JSON.stringify(QUESTION)}`, `max_tokens=${MAX_TOKENS}`),
    result: "answer.choices[0].text",
  };
}

/** @returns {First} */
function embeddings(model) {
  const body = { model, input: QUESTION };
  return {
    path: "/v1/embeddings",
    body,
    call: called("embeddings", model, `input=${JSON.stringify(QUESTION)}`),
    result: "answer.data[0].embedding",
  };
}

/** Return a call of OpenAI's client, with an argument in each line. */
function called(what, model, ...given) {
  const lines = [`model=${JSON.stringify(model)}`, ...given].map((each) => `    ${each},\n`);
  return `client.${what}.create(\n${lines.join("")})`;
}

function snippetsOf(model, first) {
  const query = { stream: false, keyed: hasKey() };
  const python = [
    `${imports(query, "from openai import OpenAI  # pip install openai")}client = OpenAI(base_url=${
      JSON.stringify(`${origin()}/v1`)}, ${keyArgument(query)})`,
    `answer = ${first.call}`,
    `print(${first.result})`,
    "",
  ].join("\n");
  const facts = query.keyed
    ? [element("p", { class: "quiet-text" }, "The examples read the API key from the environment variable ", element("code", {}, KEY_VARIABLE), ".")]
    : [];
  return [
    ...facts,
    snippet("In a terminal", "curl", curl(first, origin(), query)),
    snippet("In Python", "python", python),
  ];
}

function bodyOfItsOwn(model) {
  const path = `/predictions/${encodeURIComponent(model)}`;
  return element("p", {}, "The model's own code answers ", element("code", {}, `POST ${path}`), " and defines the form of requests.");
}

function snippet(title, id, text) {
  const shown = element("pre", { id, tabindex: "0", "aria-label": title }, text);
  const copies = button("Copy", () => copy(copies, text), { class: "quiet", "data-icon": "copy", "aria-label": `Copy: ${title}` });
  return element("div", { class: "snippet" }, element("header", {}, element("span", {}, title), copies), shown);
}
