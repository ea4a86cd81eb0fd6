// @ts-check
// The chats of this browser tab, in its session storage: a reload keeps them, closing the tab deletes them.

import { button, byId, element } from "../shared/dom.js";
import { Answer } from "./answer.js";

/**
 * @typedef {import("./conversation.js").Turn} Turn
 * @typedef {{ mode: "chat" | "text", model: string, adapter: string | null, system: string, turns: Turn[] }} Conversation
 */

const KEY = "lmi-chats";

export class Chats {
  /** @param {() => void} chosen called when another chat is the current one */
  constructor(chosen) {
    this.chosen = chosen;
    /** @type {Conversation[]} the newest first */
    this.all = [];
    this.current = newConversation();
    /** @type {Record<string, string>} what is filled in beside the chats, by the fields' ids */
    this.fields = {};
    /** @type {{ chat: Conversation, at: number } | null} the last one that was deleted */
    this.deleted = null;
    this.list = element("ul", { class: "chats", "aria-label": "Chats" });
    this.none = element("p", { class: "quiet-text" }, "No chats yet.");
    this.undo = element("p", { class: "quiet-text deleted", role: "status" });
    this.element = element("div", {}, this.none, this.list, this.undo, element("p", { class: "quiet-text" },
      "Chats stay in this browser tab. Closing the tab deletes them."));
    this.#restore();
    this.#show();
  }

  /** Begin a chat; the current one stays in the list. */
  begin() {
    this.current = newConversation();
    this.save();
  }

  /** Keep the chats, without the oldest where the browser has no room for all. */
  save() {
    if (this.current.turns.length && !this.all.includes(this.current)) this.all.unshift(this.current);
    this.all = this.all.filter((chat) => chat.turns.length);
    for (let count = this.all.length; ; count--) {
      const kept = this.all.slice(0, count);
      try {
        sessionStorage.setItem(KEY, JSON.stringify({ current: kept.indexOf(this.current), chats: kept.map(stored), fields: this.fields }));
        break;
      } catch (error) {
        if (!count) throw error;
      }
    }
    this.#show();
  }

  #restore() {
    const { current, chats, fields } = JSON.parse(sessionStorage.getItem(KEY) ?? '{ "current": -1, "chats": [] }');
    this.all = chats.map(restored);
    this.current = this.all[current] ?? this.current;
    this.fields = fields ?? {};
  }

  #show() {
    this.none.hidden = this.all.length > 0;
    this.undo.replaceChildren(...(this.deleted ? [`Deleted: ${title(this.deleted.chat)}`, button("Undo", () => this.#restoreDeleted())] : []));
    this.list.replaceChildren(...this.all.map((chat) => {
      const isCurrent = chat === this.current;
      return element("li", {},
        button(title(chat), () => this.#choose(chat), { class: "quiet", ...(isCurrent ? { "aria-current": "true" } : {}) }),
        button("", () => download(chat), { class: "quiet", "data-icon": "download", "aria-label": `Download ${title(chat)}`, title: "Download" }),
        button("", () => this.#remove(chat), { class: "quiet", "data-icon": "trash-2", "aria-label": `Delete ${title(chat)}`, title: "Delete" }));
    }));
  }

  #choose(/** @type {Conversation} */ chat) {
    this.current = chat;
    this.chosen();
    this.save();
    this.list.querySelector("button[aria-current]")?.focus();
  }

  #remove(/** @type {Conversation} */ chat) {
    const at = this.all.indexOf(chat);
    const wasCurrent = chat === this.current;
    this.all.splice(at, 1);
    this.deleted = { chat, at };
    if (wasCurrent) {
      this.current = newConversation();
      this.chosen();
    }
    this.save();
    const next = /** @type {HTMLElement | null} */ (this.list.children[Math.min(at, this.all.length - 1)]?.firstChild ?? null);
    (next ?? byId("clear")).focus();
  }

  #restoreDeleted() {
    if (!this.deleted) return;
    const { chat, at } = this.deleted;
    this.deleted = null;
    this.all.splice(at, 0, chat);
    this.save();
    /** @type {HTMLElement} */ (this.list.children[at].firstChild).focus();
  }
}

/** @returns {Conversation} */
function newConversation() {
  return { mode: "chat", model: "", adapter: null, system: "", turns: [] };
}

/** @param {Conversation} chat */
function title(chat) {
  const first = chat.turns[0];
  return (first.role === "user" && first.text.trim().slice(0, 80)) || "Images";
}

/** Have the browser save the chat, as Markdown. @param {Conversation} chat */
function download(chat) {
  const text = chat.turns.map((turn) =>
    (turn.role === "assistant" ? `## ${turn.name}\n\n${turn.answer.text}\n` : `## ${turn.role === "user" ? "You" : turn.name}\n\n${turn.text}\n`));
  const href = `data:text/markdown;charset=utf-8,${encodeURIComponent(text.join("\n"))}`;
  element("a", { href, download: `${title(chat).replaceAll(/[^\p{L}\p{N}]+/gu, " ").trim() || "chat"}.md` }).click();
}

/** @param {Conversation} chat */
function stored(chat) {
  return { ...chat, turns: chat.turns.map((turn) => (turn.role === "assistant" ? { ...turn, answer: turn.answer.stored } : turn)) };
}

/**
 * @param {any} chat as it was stored
 * @returns {Conversation}
 */
function restored(chat) {
  return { ...chat, turns: chat.turns.map((/** @type {any} */ turn) =>
    (turn.role === "assistant" ? { ...turn, answer: Answer.restored(turn.answer) } : turn)) };
}
