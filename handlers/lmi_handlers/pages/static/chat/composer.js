// @ts-check
// Where a message is written, sent, and its answer stopped.

import { byId } from "../shared/dom.js";
import { Images } from "./images.js";

const LABELS = {
  chat: { label: "Message", placeholder: "Ask anything", send: "Send", hint: "Enter to send, Shift+Enter for a new line" },
  text: { label: "Text to continue", placeholder: "Write some text", send: "Continue", hint: "Enter to send, Shift+Enter for a new line" },
};

export class Composer {
  /**
   * @param {{ send: (text: string, images: import("./images.js").Image[]) => void, stop: () => void, changed: () => void }} actions
   */
  constructor(actions) {
    this.actions = actions;
    this.form = /** @type {HTMLFormElement} */ (byId("composer"));
    this.text = /** @type {HTMLTextAreaElement} */ (byId("text"));
    this.images = new Images(this.form, (text) => {
      const before = this.text.value.trimEnd();
      this.write(before ? `${before}\n\n${text}` : text);
      actions.changed();
    });
    this.isBusy = false;
    this.mayBeSent = true;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    this.text.addEventListener("input", () => {
      this.#grow();
      actions.changed();
    });
    byId("stop").addEventListener("click", () => actions.stop());
  }

  /** @param {"chat" | "text"} mode */
  show(mode) {
    const words = LABELS[mode];
    byId("text-label").textContent = words.label;
    this.text.placeholder = words.placeholder;
    byId("send").textContent = words.send;
    byId("hint").textContent = words.hint;
  }

  /** @param {boolean} busy whether an answer is being generated */
  busy(busy) {
    const hadFocus = document.activeElement === byId("stop");
    this.isBusy = busy;
    byId("stop").hidden = !busy;
    byId("send").hidden = busy;
    if (hadFocus) this.text.focus();
  }

  /** @param {boolean} allowed whether there is a model to send to */
  allow(allowed) {
    this.mayBeSent = allowed;
    /** @type {HTMLButtonElement} */ (byId("send")).disabled = !allowed;
  }

  /** @param {string} text */
  write(text) {
    this.text.value = text;
    this.#grow();
    this.text.focus();
  }

  #send() {
    if (this.isBusy || !this.mayBeSent) return;
    const text = this.text.value;
    const images = this.images.all;
    if (!text.trim() && !images.length) return;
    this.actions.send(text, images);
  }

  clear() {
    this.text.value = "";
    this.images.clear();
    this.#grow();
  }

  #grow() {
    this.text.style.height = "auto";
    this.text.style.height = `${this.text.scrollHeight + 2}px`;
  }
}
