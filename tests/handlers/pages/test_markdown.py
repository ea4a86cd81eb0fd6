"""Markdown in answers: rendered while it comes, and unable to act by itself."""

import asyncio

import pytest
from playwright.async_api import expect

from tests.handlers.pages.conftest import OpenPage, Site
from tests.handlers.pages.steps import answers, ask, say

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECONDS = 60
CODE = "def add(one, two):\n    return one + two\n"
MARKDOWN = f"""\
# Title

Some **bold** text, *more*, and [a link][later].

1. One
2. Two

```python
{CODE}```

| Name | Size |
|------|-----:|
| one | 1 |

[later]: https://example.com/later
"""
ATTACK = """\
<script>alert(1)</script> <img src=x onerror=alert(2)>

[press](javascript:alert(3)) [data](data:text/html,<script>alert(4)</script>)

![](http://other.invalid/seen.png "onerror=alert(5)") ![cat" onclick="alert(6)](http://other.invalid/cat.png)

```<b>x</b>" onclick="alert(7)
<script>alert(8)</script>
```
"""
# Renders a text piece by piece, and counts the blocks that this made.
PIECE_BY_PIECE = """async (text) => {
  const { MarkdownText } = await import("/pages/chat/markdown.js");
  const view = new MarkdownText();
  let made = 0;
  const append = view.element.append;
  view.element.append = (...nodes) => { made += nodes.length; append.apply(view.element, nodes); };
  let first = null;
  for (const piece of text.match(/[^]{1,4}/g)) {
    view.add([{ kind: "content", text: piece, tokens: [] }]);
    if (view.element.children.length > 1) first ??= view.element.firstChild;
  }
  const stayed = first === view.element.firstChild;
  view.finish();
  const whole = new MarkdownText();
  whole.add([{ kind: "content", text, tokens: [] }]);
  whole.finish();
  const same = whole.element.innerHTML === view.element.innerHTML;
  return { made, blocks: view.element.children.length, stayed, same };
}"""
# Writes a long block of code piece by piece, and returns how many characters one piece highlighted at most.
HIGHLIGHTED = """async (code) => {
  const { CodeBlock } = await import("/pages/chat/code_block.js");
  const highlighter = (await import("/pages/vendor/highlight.js")).default;
  const { highlight } = highlighter;
  let count = 0;
  highlighter.highlight = (text, options) => { count += text.length; return highlight(text, options); };
  const block = new CodeBlock("python");
  document.body.append(block.element);
  let most = 0;
  for (let at = 100; at < code.length + 100; at += 100) {
    count = 0;
    block.write(code.slice(0, at));
    most = Math.max(most, count);
  }
  const strings = block.code.querySelectorAll(".hljs-string").length;
  const text = block.code.innerText;
  block.finish();
  highlighter.highlight = highlight;
  return { most, strings, whole: block.code.querySelectorAll(".hljs-string").length, text };
}"""


async def test_markdown_is_rendered_while_it_comes(open_page: OpenPage, site: Site) -> None:
    script = site.say(MARKDOWN, hold=True)
    async with open_page() as page:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await say(page, "Show **all**.")
        await asyncio.wait_for(script.started.wait(), SECONDS)
        answer = answers(page).locator(".said").last
        await expect(answer.locator("td.right")).to_have_text("1")
        await expect(answer.locator("strong")).to_have_text("bold")
        await expect(answer.locator("ol li")).to_have_text(["One", "Two"])
        await expect(answer.locator("pre .hljs-keyword")).to_have_text(["def", "return"])
        await answer.get_by_role("button", name="Copy code").click()
        assert await page.evaluate("navigator.clipboard.readText()") == CODE
        await page.keyboard.press("Escape")
        link = answer.get_by_role("link", name="a link")
        await expect(link).to_have_attribute("href", "https://example.com/later")
        await expect(link).to_have_attribute("rel", "noopener noreferrer")
        await expect(link).to_have_attribute("target", "_blank")
        await expect(page.locator(".turn.user .said")).to_have_text("Show **all**.")


async def test_only_the_last_block_is_rendered_again(open_page: OpenPage) -> None:
    text = "Some words of text.\n\n" * 100
    async with open_page() as page:
        found = await page.evaluate(PIECE_BY_PIECE, text)
        assert (found["blocks"], found["stayed"], found["same"]) == (100, True, True)
        assert found["made"] < 100 * 15  # rendering all blocks for each piece would make 25,000
        mixed = await page.evaluate(PIECE_BY_PIECE, f"- a\n--- b\n\n{MARKDOWN}")
        assert mixed["same"]


async def test_a_piece_of_code_costs_the_same_in_a_long_block(open_page: OpenPage) -> None:
    line = "value = function(one, two)\n"
    text = f'"""\n{line * 100}"""\n'  # one string over several chunks
    async with open_page() as page:
        found = await page.evaluate(HIGHLIGHTED, text)
        assert found["most"] <= 2 * 2_000
        assert (found["strings"] > 1, found["whole"], found["text"].rstrip()) == (True, 1, text.rstrip())
        very_long = await page.evaluate(HIGHLIGHTED, f"{line}\n" * 1_000)
        assert very_long["most"] <= 2 * 2_000
        assert very_long["text"].splitlines() == [line.rstrip(), ""] * 1_000
        after_long_line = await page.evaluate(HIGHLIGHTED, "one = 1; " * 400 + "\n" + line * 400)
        assert after_long_line["most"] <= 2 * 4_000


async def test_nothing_in_an_answer_acts(open_page: OpenPage, site: Site) -> None:
    site.say(ATTACK)
    async with open_page() as page:  # which fails on a dialog, a request to another host, and a breach of the policy
        await ask(page, "Attack.")
        answer = answers(page).locator(".said").last
        assert await answer.locator("img, script, b, [onclick], [onerror], [style]").count() == 0
        addresses = [await link.get_attribute("href") for link in await answer.locator("a").all()]
        assert addresses == ["http://other.invalid/seen.png", "http://other.invalid/cat.png"]
        await expect(answer).to_contain_text("<script>alert(1)</script> <img src=x onerror=alert(2)>")
        await expect(answer.locator("pre")).to_have_text("<script>alert(8)</script>\n")


async def test_completions_stay_as_they_are(open_page: OpenPage, site: Site) -> None:
    site.say("**not bold**")
    async with open_page() as page:
        await page.get_by_label("Text", exact=True).check()
        assert await ask(page, "Once") == "**not bold**"


async def test_a_quote_stands_apart_from_the_code_above(open_page: OpenPage, site: Site) -> None:
    site.say("```\ncode\n```\n> A quote")
    async with open_page() as page:
        await ask(page, "Quote.")
        await expect(answers(page).locator("blockquote")).to_have_css("margin-top", "12px")
