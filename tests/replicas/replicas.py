"""Three replicas behind a router that is not ours, while one of them is shut down: every request is answered, and
answered alike."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = {"nginx": ["nginx"], "haproxy": ["haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"]}
REQUESTS, CLIENTS, PROMPTS = 60, 6, 12


def configuration(heading):
    """The code under a heading of the page."""
    page = (ROOT / "docs/replicas.md").read_text()
    return re.search(rf"### {heading}.*?```\w+\n(.*?)```", page, re.S | re.I)[1]


def program(name):
    """The router's program, and its environment; none if it cannot be had."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    if found := shutil.which(name, path=path):
        return found, dict(os.environ)
    folder = ROOT / "target/serving/routers"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if not (folder / "root/usr/sbin" / name).exists():
            subprocess.run(["apt-get", "download", *PACKAGES[name]], cwd=folder, check=True, capture_output=True)
            for package in folder.glob("*.deb"):
                subprocess.run(["dpkg", "-x", package, folder / "root"], check=True)
                package.unlink()
    except (OSError, subprocess.CalledProcessError):
        return None
    libraries = ":".join(sorted({str(file.parent) for file in (folder / "root").rglob("*.so*")}))
    return str(folder / "root/usr/sbin" / name), dict(os.environ, LD_LIBRARY_PATH=libraries)


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def wait(what, holds):
    end = time.time() + 60
    while not holds():
        assert time.time() < end, f"not within a minute: {what}"
        time.sleep(0.05)


def status(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def ask(port, number):
    """The text of a streamed answer, which must be whole."""
    body = {"prompt": f"Number {number % PROMPTS} is", "max_tokens": 24, "ignore_eos": True, "temperature": 0, "stream": True}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        lines = [line[6:] for line in answer.read().decode().splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]", lines[-1:]
    events = [json.loads(line) for line in lines[:-1]]
    assert not any("error" in event for event in events), events[-1]
    return "".join(event["choices"][0]["text"] for event in events)


def run(name, tegula):
    found = program(name)
    if found is None:
        skip = f"replicas behind {name}: it cannot be had here (Debian: {name})"
        print(skip)
        with open(os.environ.get("TEGULA_SKIPS", os.devnull), "a") as skips:
            print(skip, file=skips)
        return
    ports, router_port = [free_port() for _ in range(3)], free_port()
    text = configuration(name)
    for written, port in zip([8001, 8002, 8003, 8000], [*ports, router_port]):
        text = text.replace(str(written), str(port))
    children = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            logs = [open(f"{folder}/{port}.log", "w+") for port in ports]
            for port, log in zip(ports, logs):
                command = [tegula, "serve", "smollm2", "--port", str(port), "--kv-memory", "8192 tokens", "--log-format", "json"]
                environment = dict(os.environ, TEGULA_THREADS="1")
                children.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=environment))
            for port in ports:
                wait("a replica is ready", lambda: status(f"http://127.0.0.1:{port}/ready") == 200)
            alone = [ask(ports[0], number) for number in range(PROMPTS)]

            if name == "nginx":
                kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                own = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
                main = f"daemon off; pid {folder}/pid; error_log {folder}/errors; events {{}}"
                text = f"{main}\nhttp {{ access_log off; {own}\n{text}\n}}"
            file = pathlib.Path(folder) / "configuration"
            file.write_text(text)
            arguments = ["-p", folder, "-c", str(file)] if name == "nginx" else ["-f", str(file)]
            router = subprocess.Popen([found[0], *arguments], env=found[1], stderr=open(f"{folder}/router", "w"))
            children.append(router)
            wait("the router is ready", lambda: status(f"http://127.0.0.1:{router_port}/ready") == 200 or router.poll())
            assert router.poll() is None, pathlib.Path(f"{folder}/router").read_text()

            # Clients ask one after the other; when a third has been answered, the first replica is told to end.
            numbers, answers, problems = iter(range(REQUESTS)), [], []
            lock, third = threading.Lock(), threading.Event()

            def client():
                while True:
                    with lock:
                        number = next(numbers, None)
                    if number is None:
                        return
                    try:
                        answer = ask(router_port, number)
                        same = answer == alone[number % PROMPTS]
                        problem = None if same else f"{number}: {answer!r}, alone {alone[number % PROMPTS]!r}"
                    except Exception as error:
                        problem = f"{number}: {error}"
                    with lock:
                        (problems if problem else answers).append(problem or number)
                        if len(answers) + len(problems) >= REQUESTS // 3:
                            third.set()

            clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
            for it in clients:
                it.start()
            third.wait(60)
            children[0].send_signal(signal.SIGTERM)
            ended = children[0].wait(60)
            for it in clients:
                it.join()
            assert not problems, problems
            assert ended == 0, f"the replica ended with {ended}"

            def served():
                texts = [pathlib.Path(log.name).read_text() for log in logs]
                counts = [text.count('"message":"request ended"') for text in texts]
                return [counts[0] - PROMPTS, *counts[1:]]

            # Lines of the log come a little after the answers.
            wait("each request is in a log, once", lambda: sum(served()) == REQUESTS)
            assert all(served()), served()
            print(f"{REQUESTS} requests through {name}: all answered, alike; by each replica {served()}, the first was shut down")
        finally:
            for child in reversed(children):
                child.terminate()
            for child in children:
                child.wait(60)


if __name__ == "__main__":
    for router in sys.argv[2:] or PACKAGES:
        run(router, sys.argv[1])
