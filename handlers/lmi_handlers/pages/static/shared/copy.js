// @ts-check
// Copies a text, and confirms it on the button.

import { announce } from "./announce.js";

const SHOWN_MS = 1500;

/**
 * @param {HTMLButtonElement} button
 * @param {string} text
 */
export async function copy(button, text) {
  const message = (await copyText(text)) ? "Copied" : "Could not copy: the browser does not allow it";
  announce(message);
  const before = button.dataset.text ?? button.textContent ?? "";
  button.dataset.text = before;
  button.textContent = message;
  setTimeout(() => (button.textContent = before), SHOWN_MS);
}

/** @param {string} text */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text); // only on https and on this host's own address
    return true;
  } catch {
    return copyBySelection(text);
  }
}

/** @param {string} text */
function copyBySelection(text) {
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return done;
}
