// The routes of the OpenAPI document, by dialect: their fields, their answers, and a form to try them.

import { keyHeaders } from "../shared/key.js";
import { button, element } from "../shared/dom.js";
import { address, get } from "../shared/server.js";

// Text in which names stand between backticks.
function prose(text) {
  return text.split("`").map((part, place) => (place % 2 ? element("code", {}, part) : part));
}

function resolve(api, schema) {
  return schema.$ref ? api.components.schemas[schema.$ref.split("/").pop()] : schema;
}

function typeName(api, schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  const choices = (schema.anyOf || []).filter((one) => one.type !== "null");
  if (choices.length) return choices.map((one) => typeName(api, one)).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${typeName(api, schema.items || {})}`;
  return schema.type || "any";
}

function fields(api, schema) {
  const required = schema.required || [];
  const defaultOf = (field) => (field.default == null ? "" : JSON.stringify(field.default));
  const named = Object.entries(schema.properties || {});
  named.sort(([one], [other]) => required.includes(other) - required.includes(one));
  const rows = named.map(([name, field]) => element("tr", {},
    element("td", {}, element("code", {}, name)),
    element("td", {}, typeName(api, field)),
    element("td", {}, required.includes(name) ? "required" : defaultOf(field)),
    element("td", {}, ...prose(field.description || ""))));
  const heads = ["field", "type", "default", "meaning"].map((head) => element("th", { scope: "col" }, head));
  return table(heads, rows);
}

function forms(api, operation) {
  const schema = operation.requestBody?.content["application/json"].schema;
  return schema ? (schema.anyOf || [schema]).map((form) => resolve(api, form)) : [];
}

// The forms, and the named schemas within them, such as that of their parameters.
function tables(api, forms) {
  const found = new Set(forms);
  for (const schema of found) {  // a set that grows is walked to its end
    const parts = Object.values(schema.properties || {}).flatMap((field) => [field, ...(field.anyOf || [])]);
    const within = parts.flatMap((part) => [part, part.items || {}]).map((part) => resolve(api, part));
    within.filter((part) => part.properties).forEach((part) => found.add(part));
  }
  return [...found].flatMap((schema) => [element("h4", {}, schema.title || ""), fields(api, schema)]);
}

function tryIt(operation, method, path, examples) {
  const names = operation.parameters.map((parameter) => element("input", {
    name: parameter.name,
    value: parameter.schema.examples[0] || "",
    placeholder: parameter.name,
    "aria-label": parameter.name,
  }));
  const body = element("textarea", { rows: 12, "aria-label": "Body", class: "mono" });
  body.value = examples.length ? JSON.stringify(examples[0], null, 2) : "";
  const picks = examples.map((example, place) => button(`Example ${place + 1}`, () => {
    body.value = JSON.stringify(example, null, 2);
  }));
  const answer = element("pre", { hidden: true, tabindex: "0", "aria-label": "Answer" });
  const form = element("form", {}, ...names, ...(method === "post" ? [...picks, body] : []),
    element("button", { class: "main" }, "Send"), answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const url = names.reduce((all, input) => all.replace(`{${input.name}}`, encodeURIComponent(input.value)), path);
    const json = { method: "POST", headers: { "Content-Type": "application/json" }, body: body.value };
    await send(address(url), method === "post" ? json : { method: method.toUpperCase() }, answer);
  });
  return form;
}

async function send(url, request, answer) {
  answer.hidden = false;
  answer.textContent = "...";
  try {
    const response = await fetch(url, { ...request, headers: { ...request.headers, ...keyHeaders() } });
    answer.textContent = `${response.status} ${response.headers.get("content-type")}\n\n`;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) answer.append(part.value);
  } catch (error) {
    answer.append(String(error));
  }
}

// The answers of an operation by status: the types of their bodies, or of a stream's events.
function answers(api, operation) {
  const rows = Object.entries(operation.responses).flatMap(([status, given]) => {
    const response = given.$ref ? api.components.responses[given.$ref.split("/").pop()] : given;
    const contents = Object.entries(response.content || { "": {} });
    return contents.map(([type, media]) => element("tr", {},
      element("td", {}, element("code", {}, status)),
      element("td", {}, element("code", {}, type)),
      element("td", {}, media.schema ? typeName(api, media.schema) : ""),
      element("td", {}, response.description)));
  });
  const heads = ["status", "content type", "type", "meaning"].map((head) => element("th", { scope: "col" }, head));
  return [element("h4", {}, "Answers"), table(heads, rows)];
}

function table(heads, rows) {
  return element("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" },
    element("table", {}, element("tr", {}, ...heads), ...rows));
}

// A route, whose tables are made when it is opened for the first time.
function card(api, path, method, operation) {
  const made = element("details", {},
    element("summary", {}, element("span", { class: "method" }, method.toUpperCase()), " ",
      element("code", {}, path), " ", ...prose(operation.summary)));
  made.addEventListener("toggle", () => {
    const schemas = forms(api, operation);
    const examples = schemas.flatMap((schema) => schema.examples || []);
    made.append(tryIt(operation, method, path, examples), ...tables(api, schemas), ...answers(api, operation));
  }, { once: true });
  return made;
}

export async function showRoutes(place) {
  const api = await get("/openapi.json");
  const sections = new Map(api.tags.map((tag) => [tag.name, element("section", {}, element("h3", {}, tag.description))]));
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      sections.get(operation.tags[0]).append(card(api, path, method, operation));
    }
  }
  place.replaceChildren(...sections.values());
}
