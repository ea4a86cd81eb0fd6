// @ts-check
// Files to be sent with a message, dropped anywhere on the page or pasted: images, which can also be picked, and texts,
// which become part of the message.

import { announce } from "../shared/announce.js";
import { byId, element } from "../shared/dom.js";

const MAX_TEXT = 1_000_000; // bytes

/** @typedef {{ name: string, url: string }} Image */

export class Images {
  /**
   * @param {HTMLElement} place where files may be pasted
   * @param {(text: string) => void} write adds a text to the message
   */
  constructor(place, write) {
    this.write = write;
    /** @type {Image[]} */
    this.all = [];
    this.most = 0; // what the model takes in one prompt
    const input = /** @type {HTMLInputElement} */ (byId("images"));
    input.addEventListener("change", async () => {
      await this.add([...(input.files ?? [])]);
      input.value = "";
    });
    place.addEventListener("paste", (event) => this.#take(event, /** @type {ClipboardEvent} */ (event).clipboardData));
    this.#takeDrops();
  }

  /** Take files that are dropped, wherever that is: a browser would open them in place of the page. */
  #takeDrops() {
    const page = document.documentElement;
    page.addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return; // a text, which the browser moves by itself
      event.preventDefault();
      event.dataTransfer.dropEffect = "copy";
      page.classList.add("dropping");
    });
    page.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) page.classList.remove("dropping"); // the page, and not one of its parts
    });
    page.addEventListener("drop", (event) => {
      page.classList.remove("dropping");
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      void this.add([...event.dataTransfer.files]);
    });
  }

  /** @param {number} most how many images the model takes; none hides the picker */
  allow(most) {
    this.most = most;
    byId("attach").hidden = most === 0;
    if (!most) this.clear();
  }

  clear() {
    this.all = [];
    this.#showNote("");
    this.#show();
  }

  /** @param {File[]} files */
  async add(files) {
    const images = files.filter(isImage);
    const room = Math.max(0, this.most - this.all.length);
    if (images.length && !this.most) this.#showNote("This model does not accept images");
    else this.#showNote(images.length > room ? `This model accepts at most ${this.most} images` : "");
    for (const file of files.filter((each) => !isImage(each))) {
      const text = await readText(file);
      if (text === null) this.#showNote(`${file.name} is not a text file of at most 1 MB`);
      else this.write(text);
    }
    const added = await Promise.all(images.slice(0, room).map(
      async (file) => ({ name: file.name || "pasted image", url: await dataUrl(file) })));
    this.all.push(...added);
    this.#show();
  }

  /** Say why a file was not added, to the eye and to the ear. */
  #showNote(/** @type {string} */ what) {
    byId("attach-note").textContent = what;
    if (what) announce(what);
  }

  #take(/** @type {Event} */ event, /** @type {DataTransfer | null} */ data) {
    const files = [...(data?.files ?? [])].filter((each) => this.most || !isImage(each));
    if (!files.length) return;
    event.preventDefault();
    void this.add(files);
  }

  #show() {
    byId("attached").replaceChildren(...this.all.map((image) =>
      element("li", {},
        element("img", { src: image.url, alt: image.name }),
        element("button", { type: "button", "data-icon": "x", "aria-label": `Remove ${image.name}`, click: () => this.#remove(image) }))));
  }

  #remove(/** @type {Image} */ image) {
    this.all = this.all.filter((each) => each !== image);
    this.#showNote("");
    this.#show();
    byId("text").focus();
  }
}

/** @param {File} file */
function isImage(file) {
  return file.type.startsWith("image/");
}

/**
 * Return a text file as a block of code under its name; null if it is no text, or too long.
 * @param {File} file
 */
async function readText(file) {
  if (file.size > MAX_TEXT) return null;
  const text = await file.text().catch(() => "\0"); // a folder, or a file that is gone
  if (/[\0\uFFFD]/.test(text)) return null; // bytes that are not UTF-8 become the second
  const fences = text.match(/`{3,}/g) ?? [];
  const fence = "`".repeat(Math.max(3, ...fences.map((each) => each.length + 1)));
  return `${file.name}:\n${fence}\n${text.trimEnd()}\n${fence}\n`;
}

/**
 * @param {File} file
 * @returns {Promise<string>}
 */
function dataUrl(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => done(String(reader.result)));
    reader.addEventListener("error", () => failed(reader.error));
    reader.readAsDataURL(file);
  });
}
