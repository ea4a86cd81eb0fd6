// @ts-check
// A request as a curl command for a shell.

import { KEY_VARIABLE } from "./python.js";

/**
 * @param {import("./query.js").Request} request
 * @param {string} origin
 * @param {{ stream: boolean, keyed: boolean }} query
 */
export function curl(request, origin, { stream, keyed }) {
  const headers = { "Content-Type": "application/json", ...request.headers };
  const lines = [
    `curl${stream ? " -N" : ""} ${quoted(origin + request.path)}`,
    ...(keyed ? [`-H "Authorization: Bearer $${KEY_VARIABLE}"`] : []), // the shell puts the key in
    ...Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`),
    `-d ${quoted(JSON.stringify(request.body, null, 2))}`,
  ];
  return `${lines.join(" \\\n  ")}\n`;
}

/** @param {string} text */
function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
