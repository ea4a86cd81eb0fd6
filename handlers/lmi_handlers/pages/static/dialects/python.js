// @ts-check
// Requests as programs in Python.

/** @typedef {import("./query.js").Query} Query */

export const KEY_VARIABLE = "LMI_API_KEY"; // the environment variable that holds the API key where programs run

/** Code that stands for a value, such as a variable's name. */
class Code {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
}

/**
 * The API key as an argument of a client that wants one in any case.
 * @param {Query} query
 */
export function keyArgument(query) {
  return `api_key=${query.keyed ? `os.environ["${KEY_VARIABLE}"]` : `"none"`}`;
}

/**
 * The header that shows the key, where there is one.
 * @param {Query} query
 * @returns {Record<string, any>}
 */
export function keyHeader(query) {
  return query.keyed ? { Authorization: new Code(`f"Bearer {os.environ['${KEY_VARIABLE}']}"`) } : {};
}

/**
 * The lines that import the libraries: those of Python itself first.
 * @param {Query} query
 * @param {string} library
 * @param {string[]} own
 */
export function imports(query, library, own = []) {
  const all = [...own, ...(query.keyed ? ["import os"] : [])];
  return `${all.length ? `${all.join("\n")}\n\n` : ""}${library}\n\n`;
}

/**
 * Return a value of JSON as a literal of Python, indented.
 * @param {any} value
 * @param {string} indent
 * @returns {string}
 */
export function literal(value, indent = "") {
  const inner = `${indent}    `;
  if (value === null || value === undefined) return "None";
  if (value instanceof Code) return value.text;
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const items = Array.isArray(value)
    ? value.map((each) => literal(each, inner))
    : Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${literal(each, inner)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const line = `${open}${items.join(", ")}${close}`;
  if (line.length + indent.length < 72 && !line.includes("\n")) return line;
  return `${open}\n${items.map((item) => `${inner}${item},\n`).join("")}${indent}${close}`;
}

/**
 * Return a call with an argument on each line.
 * @param {string} name
 * @param {Record<string, any>} values
 */
export function called(name, values) {
  const lines = Object.entries(values).map(([key, value]) => `    ${key}=${literal(value, "    ")},\n`);
  return `${name}(\n${lines.join("")})`;
}

/**
 * Divide a body into what the client's function knows, and `extra_body` with the rest.
 * @param {Record<string, any>} body
 * @param {string[]} extensions
 */
export function split(body, extensions) {
  const isExtra = (/** @type {[string, any]} */ [name]) => extensions.includes(name);
  const entries = Object.entries(body);
  const extra = Object.fromEntries(entries.filter(isExtra));
  const known = Object.fromEntries(entries.filter((entry) => !isExtra(entry)));
  return { known, extra: Object.keys(extra).length ? { extra_body: extra } : {} };
}

/**
 * Return a program with a client whose streams are parts with a text each.
 * @param {string} origin
 * @param {Query} query
 * @param {{ imports: string, call: string, body: Record<string, any>, shown: string, part: string }} how
 * @param {(origin: string, query: Query) => string} client
 * @param {string[]} extensions
 */
export function program(origin, query, how, client, extensions) {
  const { known, extra } = split(how.body, extensions);
  const call = called(how.call, { ...known, ...extra });
  const used = query.stream
    ? `for part in ${call}:\n    if part.choices:\n        print(${how.part} or "", end="", flush=True)\n`
    : `answer = ${call}\nprint(${how.shown})\n`;
  return `${imports(query, how.imports)}${client(origin, query)}\n\n${used}`;
}

/**
 * Return a program for a dialect without a client of its own.
 * @param {Query} query
 * @param {import("./query.js").Request} request
 * @param {string} origin
 * @param {string} member where the whole answer has its text
 */
export function posted(query, request, origin, member) {
  const all = { ...keyHeader(query), ...request.headers };
  const headers = Object.keys(all).length ? { headers: all } : {};
  const call = called("requests.post", {
    url: origin + request.path, ...headers, json: request.body, ...(query.stream ? { stream: true } : {}),
  });
  const shown = query.stream
    ? `for line in answer.iter_lines(decode_unicode=True):\n    print(line)\n`
    : `print(answer.json()${member})\n`;
  return `${imports(query, "import requests")}answer = ${call}\nanswer.raise_for_status()\n${shown}`;
}
