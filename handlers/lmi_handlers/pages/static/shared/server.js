// @ts-check
// Requests to the server, at addresses relative to the page: also behind a proxy that puts it under a path.

import { askForKey, keyHeaders } from "./key.js";

const UNAUTHORIZED = 401;

export class ServerError extends Error {
  /**
   * @param {string} message the server's own sentence
   * @param {number} status
   */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/**
 * Return the whole address of a route.
 * @param {string} path such as /v1/models
 */
export function address(path) {
  return new URL(path.replace(/^\//, "") || ".", document.baseURI).href;
}

/** The address of the server, without a slash at its end. */
export function origin() {
  return address("/").replace(/\/$/, "");
}

/**
 * Send a request, with the API key if there is one, and return its response. Throw ServerError where it fails.
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
export async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(address(path), { ...options, headers: { ...options.headers, ...keyHeaders() } });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ServerError("The server is not responding.", 0);
  }
  if (response.ok) return response;
  const message = messageOf(await response.text(), response);
  if (response.status === UNAUTHORIZED && await askForKey(message)) return request(path, options);
  throw new ServerError(message, response.status);
}

/** @param {string} path */
export async function get(path) {
  return (await request(path)).json();
}

/**
 * @param {string} path
 * @param {unknown} body
 * @param {AbortSignal} [signal]
 */
export function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return request(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

/**
 * Return the sentence in an error's body, in the form of any dialect.
 * @param {string} text
 * @param {Response} response
 */
function messageOf(text, response) {
  try {
    const body = JSON.parse(text);
    const error = body.error ?? body.detail ?? body.message;
    const message = typeof error === "object" && error !== null ? error.message : error;
    if (typeof message === "string" && message) return message;
  } catch {
    // Not JSON: the text itself.
  }
  return text.trim().slice(0, 500) || `The server answered with status ${response.status}.`;
}
