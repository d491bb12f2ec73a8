"""The chat page of a running server, in a headless Chromium.

    page.py URL [SCREENSHOT]

Types a question, sees the answer come piece by piece, stops another, tries the settings, the keys and a wrong server.
"""

import sys
import urllib.request

from browser import Browser


def metric(url: str, name: str) -> float:
    text = urllib.request.urlopen(url + "/metrics", timeout=10).read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{"))


def main(url: str, screenshot: str | None) -> None:
    url = url.rstrip("/")
    browser = Browser(1120, 760)
    text = lambda selector: browser.evaluate(f"[...document.querySelectorAll({selector!r})].at(-1)?.innerText ?? ''")
    try:
        # What the policy forbids must be forbidden in fact: see the end.
        browser.open(url + "/")
        browser.wait("document.querySelector('#model').dataset.state === 'ready'", 20)
        print("model:", text("#model"))

        # A short answer, sent by Enter, that ends by itself.
        browser.click("#toggle")
        browser.click("#max_tokens")
        browser.type("24")
        browser.click("#temperature")
        browser.type("0")
        browser.click("#prompt")
        browser.type("Explain gravity in two sentences.")
        browser.press("Enter", 13)
        browser.wait("document.querySelectorAll('.turn.assistant.running').length === 1", 10)
        browser.wait("!document.querySelector('.turn.running')", 120)
        answer, foot = text(".turn.assistant .text"), text(".turn.assistant .foot")
        assert answer and "tokens/s" in foot and "24 tokens" in foot and "cut" in foot, (answer, foot)
        assert text(".turn.user .text") == "Explain gravity in two sentences."
        print("answer:", foot.replace("\n", " "))

        # A long one: its text grows while it is read, the server counts it, and Stop ends it there.
        browser.click("#max_tokens")
        browser.evaluate("document.querySelector('#max_tokens').select()")
        browser.type("2000")
        browser.click("#prompt")
        browser.type("Tell a long story about a tiler, a mason and a cat.")
        browser.click("#send")
        lengths = [0]
        for _ in range(3):
            browser.wait(f"([...document.querySelectorAll('.turn.assistant .text')].at(-1)?.innerText.length ?? 0) > {lengths[-1]}", 60)
            lengths.append(len(text(".turn.assistant .text")))
        browser.wait("Number(document.querySelector('#running').innerText) >= 1", 10)
        if screenshot:
            browser.wait("[...document.querySelectorAll('.turn.assistant .text')].at(-1).innerText.length > 420 || !document.querySelector('.turn.running')", 60)
            browser.wait("Number(document.querySelector('#rate').innerText) > 0", 10)
            browser.evaluate("document.querySelector('#prompt').value = ''")
            browser.screenshot(screenshot)
        browser.click("#stop")
        browser.wait("!document.querySelector('.turn.running')", 5)
        assert "stopped" in text(".turn.assistant .foot"), text(".turn.assistant .foot")
        print("grew:", lengths, "then:", text(".turn.assistant .foot").replace("\n", " "))
        for _ in range(100):
            if metric(url, "vllm:num_requests_running") == 0:
                break
        assert metric(url, "vllm:num_requests_running") == 0, "the server goes on with an answer that was stopped"

        # Esc stops too; Alt+N begins anew; a mistake is told in the conversation.
        browser.type("Another story, please, of the same length.")
        browser.press("Enter", 13)
        browser.wait("([...document.querySelectorAll('.turn.assistant .text')].at(-1)?.innerText.length ?? 0) > 5", 60)
        browser.press("Escape", 27)
        browser.wait("!document.querySelector('.turn.running')", 5)
        browser.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', {altKey: true, code: 'KeyN'}))")
        browser.wait("!document.querySelector('.turn') && !document.querySelector('#hello').hidden", 5)
        assert not browser.complaints, browser.complaints
        browser.evaluate("document.querySelector('#top_p').max = 99; document.querySelector('#top_p').value = '7'")
        browser.click("#prompt")
        browser.type("Hello")
        browser.press("Enter", 13)
        browser.wait("document.querySelector('.turn.error') !== null", 20)
        assert "top_p" in text(".turn.error .text"), text(".turn.error .text")
        print("mistake:", text(".turn.error .text"))

        # Nothing was asked of anybody else, and nothing can be.
        others = [request for request in browser.requests if not request.startswith((url + "/", "data:"))]
        assert not others, others
        assert browser.evaluate("fetch('http://127.0.0.1:9/').then(() => 'fetched', () => 'refused')") == "refused"
        assert any("Content Security Policy" in complaint for complaint in browser.complaints), browser.complaints
        print("PASSED")
    finally:
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
