// @ts-check
// The chat page: puts its parts together.

import { announce } from "../shared/announce.js";
import { byId, element } from "../shared/dom.js";
import { hasKey } from "../shared/key.js";
import { showLinks } from "../shared/links.js";
import { tabs } from "../shared/tabs.js";
import { themeButton } from "../shared/theme.js";
import { Answer } from "./answer.js";
import { ask } from "./ask.js";
import { Chats } from "./chats.js";
import { Composer } from "./composer.js";
import { messages } from "./conversation.js";
import { ModelCard, showContext } from "./model_card.js";
import { Models } from "./models.js";
import { ParameterForm } from "./parameters.js";
import { Panel } from "./panel.js";
import { RequestsPanel } from "./requests.js";
import { hideDetails } from "./tokens.js";
import { ToolForm } from "./tools.js";
import { Transcript } from "./transcript.js";
import { keys, legend, welcome } from "./words.js";

/** @typedef {import("./conversation.js").Turn} Turn */

class Chat {
  constructor() {
    /** @type {AbortController | null} */
    this.running = null;
    this.requests = new RequestsPanel(() => this.query());
    const changed = () => this.requests.changed();
    this.parameters = new ParameterForm(changed);
    this.tools = new ToolForm(changed);
    this.composer = new Composer({
      send: (text, images) => this.send(text, images),
      stop: () => this.stop(),
      changed,
    });
    this.transcript = new Transcript({
      resend: (turn, text) => this.resend(turn, text),
      regenerate: (turn) => this.regenerate(turn),
      continueFrom: (turn) => this.continueFrom(turn),
      begin: () => this.clear(),
      results: (turn, texts) => this.sendResults(turn, texts),
    });
    this.card = new ModelCard();
    this.chats = new Chats(() => this.#showChosen());
    this.models = new Models(() => this.show());
    this.panel = new Panel();
    byId("chats").append(this.chats.element, this.card.element);
    byId("parameters").append(this.parameters.element, this.tools.element, keys());
    byId("legend").append(...legend());
    byId("requests").append(this.requests.element);
    tabs(byId("panel").querySelector("[role=tablist]") ?? byId("panel"), (name) => this.requests.show(name === "requests"));
    themeButton(byId("theme"));
    void showLinks();
    this.#listen();
    this.#restore();
    this.#restoreFields();
    void this.models.load((notice) => this.#showNotice(notice));
  }

  get turns() {
    return this.chats.current.turns;
  }

  set turns(/** @type {Turn[]} */ turns) {
    this.chats.current.turns = turns;
  }

  #listen() {
    byId("clear").addEventListener("click", () => this.clear());
    byId("modes").addEventListener("change", () => this.clear());
    addEventListener("pagehide", () => {
      this.stop(); // so that the answer does not count as failed
      this.chats.fields = { mode: this.mode, ...Object.fromEntries(keptFields().map((each) => [each.id, each.value])) };
      this.chats.save();
    });
    byId("probabilities").addEventListener("change", () => this.#showProbabilities());
    this.#showProbabilities(); // a reload may keep what was chosen
    document.addEventListener("keydown", (event) => {
      if (event.shiftKey && (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "o") {
        event.preventDefault();
        this.clear();
      }
      if (event.key !== "Escape" || hideDetails()) return;
      if (this.running) this.stop();
      else this.panel.closeIfOver();
    });
  }

  #showProbabilities() {
    const { checked } = /** @type {HTMLInputElement} */ (byId("probabilities"));
    byId("legend").hidden = !checked;
    this.transcript.showProbabilities(checked);
  }

  /** What the page sends: chats where the model has them, or plain texts. */
  get mode() {
    const chosen = /** @type {HTMLInputElement | null} */ (document.querySelector("[name=mode]:checked"));
    const can = this.models?.capabilities;
    const isKnown = can || this.models?.ready; // a model's own function has no capabilities
    return chosen?.value === "text" || (isKnown && !can?.chat) ? "text" : "chat";
  }

  /** Show what fits the chosen model. */
  show() {
    const can = this.models.capabilities;
    for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("[name=mode]"))) {
      input.disabled = !(input.value === "chat" ? can?.chat : can?.completion);
    }
    const usable = /** @type {HTMLInputElement | null} */ (document.querySelector("[name=mode]:enabled"));
    if (usable && !document.querySelector("[name=mode]:checked:enabled")) {
      usable.checked = true;
      this.chats.begin();
    }
    this.composer.show(this.mode);
    this.composer.allow(this.models.ready && Boolean(can?.completion));
    this.composer.images.allow(this.mode === "chat" ? (can?.images ?? 0) : 0);
    this.parameters.show(this.mode);
    this.tools.element.hidden = !(this.mode === "chat" && can?.tools);
    byId("clear").textContent = this.mode === "chat" ? "New chat" : "New text";
    if (!this.turns.length) this.draw();
    this.requests.changed();
    this.#showContext();
    void this.card.show(this.models);
  }

  #showContext() {
    const used = this.turns.flatMap((turn) => (turn.role === "assistant" ? turn.answer.used ?? [] : [])).at(-1);
    showContext(used ?? null, this.models.model?.max_model_len);
  }

  draw() {
    const mode = this.turns.length ? this.chats.current.mode : this.mode; // the former also before the models are known
    this.transcript.show(this.turns, mode, welcome(this.models, this.mode, (text) => {
      this.composer.text.focus();
      this.send(text, this.composer.images.all);
    }));
    byId("lost-probabilities").hidden = !this.turns.some((turn) => turn.role === "assistant" && turn.answer.isRestored);
  }

  /**
   * @param {string} text
   * @param {import("./images.js").Image[]} images
   */
  send(text, images) {
    if (!this.#isValid()) return;
    if (this.mode === "text" && this.turns.length) this.chats.begin();
    this.turns.push({ role: "user", text, images });
    this.composer.clear();
    void this.generate();
  }

  /**
   * @param {import("./conversation.js").UserTurn} turn
   * @param {string} text
   */
  resend(turn, text) {
    if (!this.#isValid()) return;
    this.stop();
    this.turns = [...this.turns.slice(0, this.turns.indexOf(turn)), { ...turn, text }];
    this.composer.text.focus();
    void this.generate();
  }

  /** @param {import("./conversation.js").AssistantTurn} turn */
  regenerate(turn) {
    if (!this.#isValid()) return;
    this.turns = this.turns.slice(0, this.turns.indexOf(turn));
    this.composer.text.focus();
    void this.generate();
  }

  /** @param {import("./conversation.js").AssistantTurn} turn */
  continueFrom(turn) {
    const before = this.turns[this.turns.indexOf(turn) - 1];
    this.composer.write((before?.role === "user" ? before.text : "") + turn.answer.text);
  }

  /**
   * @param {import("./conversation.js").AssistantTurn} turn
   * @param {string[]} texts
   */
  sendResults(turn, texts) {
    if (!this.#isValid()) return;
    const { calls } = turn.answer;
    this.turns.push(...calls.map((call, at) => ({ role: /** @type {const} */ ("tool"), id: call.id, name: call.name, text: texts[at] })));
    this.composer.text.focus();
    void this.generate();
  }

  /** Show the chat that was chosen in the list. */
  #showChosen() {
    this.stop();
    this.#restore();
    this.draw();
    this.show();
    if (this.turns.length) this.panel.closeIfOver();
  }

  /** Take the system prompt of the current chat, and its model and mode if it has begun. */
  #restore() {
    const { turns, mode, model, adapter, system } = this.chats.current;
    this.parameters.system.value = system;
    if (!turns.length) return;
    chooseMode(mode);
    this.models.choose(model, adapter);
    this.draw();
  }

  /** Fill in what a reload kept. */
  #restoreFields() {
    const { fields } = this.chats;
    for (const each of keptFields()) {
      each.value = fields[each.id] ?? each.value;
      each.dispatchEvent(new Event("input"));
    }
    if (fields.mode) chooseMode(fields.mode);
    if (fields.model) this.models.choose(fields.model, fields.adapter || null);
  }

  clear() {
    this.stop();
    if (this.turns.length) this.parameters.system.value = "";
    this.chats.begin();
    this.show();
    this.composer.text.focus();
  }

  stop() {
    this.running?.abort();
  }

  async generate() {
    const query = this.query();
    const answer = new Answer();
    const turn = { role: /** @type {const} */ ("assistant"), name: query.adapter ?? query.model, answer };
    const running = new AbortController();
    this.turns.push(turn);
    const { mode, model, adapter } = query;
    Object.assign(this.chats.current, { mode, model, adapter, system: this.parameters.system.value });
    this.chats.save();
    this.running = running;
    this.draw();
    this.composer.busy(true);
    announce("The model is answering");
    try {
      await ask(query, answer, {
        logprobs: this.models.capabilities?.logprobs ?? false,
        signal: running.signal,
        onPieces: (pieces) => {
          this.transcript.add(turn, pieces);
          this.#showContext();
        },
      });
      if (answer.finish === "length" && query.longest && (answer.used ?? 0) >= query.longest) answer.finish = "context";
      answer.finish ??= "stop";
    } catch (error) {
      if (running.signal.aborted) answer.stopped = true;
      else answer.error = error instanceof Error ? error.message : String(error);
    }
    this.transcript.finish(turn);
    this.chats.save();
    this.#showContext();
    if (this.running === running) {
      this.running = null;
      this.composer.busy(false);
    }
    this.requests.changed();
    if (!answer.error) announce(answer.stopped ? "Stopped" : `${turn.name}: ${answer.text || "calls a tool"}`);
  }

  /**
   * What would be sent now: what was sent last, or what is written where nothing was sent yet.
   * @returns {import("../dialects/query.js").Query}
   */
  query() {
    const last = this.turns.findLastIndex((turn) => turn.role !== "assistant");
    const written = { role: /** @type {const} */ ("user"), text: this.composer.text.value, images: this.composer.images.all };
    const turns = last < 0 ? [written] : this.turns.slice(0, last + 1);
    const first = turns[0];
    return {
      mode: this.mode,
      model: this.models.model?.id ?? "",
      several: this.models.several,
      adapter: this.models.adapter,
      longest: this.models.model?.max_model_len ?? null,
      messages: messages(turns, this.parameters.system.value),
      text: first.role === "user" ? first.text : "",
      values: this.parameters.values,
      tools: this.tools.tools,
      choice: this.tools.choice.value,
      stream: false,
      keyed: hasKey(),
    };
  }

  /** Whether all parameters are right; otherwise the first that is not gets the focus. */
  #isValid() {
    const wrong = this.parameters.wrong ?? this.tools.wrong;
    if (!wrong) return true;
    this.panel.open("parameters-tab");
    wrong.closest("details")?.setAttribute("open", "");
    wrong.focus();
    announce(document.getElementById(`${wrong.id}-wrong`)?.textContent ?? "");
    return false;
  }

  #showNotice(/** @type {string} */ notice) {
    byId("notice").replaceChildren(...(notice ? [element("span", {}, notice)] : []));
  }
}

/** @param {string} mode */
function chooseMode(mode) {
  /** @type {HTMLInputElement} */ (document.querySelector(`[name=mode][value=${mode}]`)).checked = true;
}

/** The fields whose content a reload keeps. */
function keptFields() {
  const selector = "#model, #adapter, #text, #parameters :is(input, select, textarea)";
  return /** @type {HTMLInputElement[]} */ ([...document.querySelectorAll(selector)]);
}

new Chat();
