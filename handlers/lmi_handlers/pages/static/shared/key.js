// @ts-check
// The API key or, on the console, the management token, where the server asks for one: kept until the tab is closed, and
// sent to this server alone.

import { element } from "./dom.js";

/** @typedef {{ name: string, title: string, label: string, use: string }} Kind */

/** @type {Kind} */
const API_KEY = { name: "lmi-api-key", title: "API key", label: "Key", use: "Use this key" };
/** @type {Kind} */
export const MANAGEMENT_TOKEN = {
  name: "lmi-management-token", title: "Management token", label: "Token", use: "Use this token",
};

let kind = API_KEY;

/** @type {Promise<boolean> | null} */
let asking = null;
let declined = false;

/** @param {Kind} other what this page's requests show in place of an API key */
export function showInstead(other) {
  kind = other;
}

/** Ask again at the next request that lacks the key, although nobody gave one before. */
export function askAgain() {
  declined = false;
}

/** The headers that show the key; none where there is no key. */
export function keyHeaders() {
  const key = sessionStorage.getItem(kind.name);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** Whether there is a key, without which the server refuses requests. */
export function hasKey() {
  return Boolean(sessionStorage.getItem(kind.name));
}

/**
 * Ask for a key, once for all requests that lack it. Returns whether one was given.
 * @param {string} reason the server's own sentence
 */
export function askForKey(reason) {
  if (declined) return Promise.resolve(false);
  asking ??= ask(reason).finally(() => { asking = null; });
  return asking;
}

/**
 * @param {string} reason
 * @returns {Promise<boolean>}
 */
function ask(reason) {
  const input = element("input", { type: "password", name: "key", required: true, autocomplete: "off", id: "api-key" });
  const cancel = element("button", { type: "button", class: "quiet" }, "Cancel");
  const dialog = element("dialog", { "aria-labelledby": "api-key-title" },
    element("form", { method: "dialog" },
      element("h2", { id: "api-key-title" }, kind.title),
      element("p", { class: "quiet-text" }, reason),
      element("label", {}, `${kind.label} `, input),
      element("p", {}, element("button", { class: "main" }, kind.use), " ", cancel)));
  document.body.append(dialog);
  cancel.addEventListener("click", () => dialog.close());
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const key = dialog.returnValue === "given" ? input.value.trim() : "";
      declined = !key;
      if (key) sessionStorage.setItem(kind.name, key);
      dialog.remove();
      resolve(Boolean(key));
    });
    dialog.querySelector("form")?.addEventListener("submit", () => { dialog.returnValue = "given"; });
    dialog.showModal();
  });
}
